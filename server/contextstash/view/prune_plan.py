"""Prune plans: which tool outputs of a view to archive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from contextstash.view.session_snapshot import SessionSnapshot
from contextstash.view.view import Entry, output_tokens
from contextstash_storage.errors import BadInputError
from contextstash_storage.records import ArchiveEdit, Output

CACHE_WRITE = 1.25
CACHE_READ = 0.10
"""Prices of a token written to and read from the prompt cache, relative to an uncached input token. Source: Anthropic's
page on prompt caching, for its five-minute cache."""


@dataclass(frozen=True, slots=True)
class PruneLimits:
    """What a prune protects, in numbers that are in force (see ContextSettings). An output below `smallest` tokens is
    not archived: its placeholder would take about 50 tokens, and it often consists of the one relevant fact."""

    keep_last: int
    protect_tokens: int
    protect_turns: int
    minimum_tokens: int
    smallest: int = 150


@dataclass(frozen=True, slots=True)
class PruneOptions:
    """A caller's options for a prune; the session's settings replace those that are None.

    If `keep_last` or `protect_tokens` is given, the settings protect nothing else, and any saving is enough unless
    `minimum_tokens` is given too. With `dry_run` nothing is changed.
    """

    keep_last: int | None = None
    protect_tokens: int | None = None
    minimum_tokens: int | None = None
    dry_run: bool = False

    def __post_init__(self) -> None:
        """Raises BadInputError if a number is below 0."""
        for name in ("keep_last", "protect_tokens", "minimum_tokens"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise BadInputError(f"{name} must be 0 or more, not {value}.")


BY_SETTINGS = PruneOptions()
"""A prune without options: the session's settings decide."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An output that could be archived. It takes `view_tokens` in the view now; `content_tokens` of them are for its
    content, without the overhead of a message."""

    output: Output
    view_tokens: int
    content_tokens: int


@dataclass(frozen=True, slots=True)
class PrunePlan:
    """The outputs to archive, in order of position; if there are none, the reason."""

    chosen: tuple[Candidate, ...]
    reason: str


def plan_prune(entries: Sequence[Entry], outputs: Mapping[tuple[int, int], Output], limits: PruneLimits) -> PrunePlan:
    """Goes back from the newest output, skips what is protected, and takes all others as one batch.

    An output is protected if fewer than `protect_turns` user turns follow it, if it is among the `keep_last` newest,
    or if it and all newer outputs add up to at most `protect_tokens`. The batch is taken only if it frees more than
    `minimum_tokens`: each prune invalidates the provider's prompt cache from its first change on.
    """
    turns = seen = total = protected = small = 0
    chosen: list[Candidate] = []
    for entry in reversed(entries):
        turns += entry.is_user_turn
        for candidate in visible_outputs(entry, outputs):
            tokens = candidate.content_tokens
            if turns < limits.protect_turns:
                protected += 1
                continue
            seen += 1
            total += tokens
            if seen <= limits.keep_last or total <= limits.protect_tokens:
                protected += 1
            elif tokens < limits.smallest:
                small += 1
            else:
                chosen.append(candidate)
    freed = sum(candidate.content_tokens for candidate in chosen)
    if not chosen:
        return PrunePlan((), _nothing(protected, small, limits))
    if freed <= limits.minimum_tokens:
        return PrunePlan(
            (),
            f"Nothing done: pruning {len(chosen)} outputs would free about {freed:,} tokens, not more than the minimum"
            f" of {limits.minimum_tokens:,} that pays for the broken prompt cache."
            " Pass minimum_tokens=0 to prune anyway.",
        )
    return PrunePlan(tuple(reversed(chosen)), "")


def oldest_outputs(
    entries: Sequence[Entry], outputs: Mapping[tuple[int, int], Output], keep: int
) -> tuple[Candidate, ...]:
    """The oldest outputs, whatever their size, without which `keep` are left in the view."""
    visible = [candidate for entry in entries for candidate in reversed(visible_outputs(entry, outputs))]
    return tuple(visible[: max(0, len(visible) - keep)])


def visible_outputs(entry: Entry, outputs: Mapping[tuple[int, int], Output]) -> list[Candidate]:
    """The outputs that an entry shows whole or cut, the last first."""
    message = entry.message
    found: list[Candidate] = []
    for place in range(len(message.blocks) - 1, -1, -1) if message else ():
        output = outputs.get((entry.first_seq, place))
        shown = entry.replaced.get(place)
        if message is None or output is None or isinstance(shown, ArchiveEdit):
            continue
        if shown is not None:
            found.append(Candidate(output, shown.tokens, shown.tokens))
        else:
            cost = output_tokens(message, place)
            found.append(Candidate(output, cost, cost - message.blocks[place].tokens + output.tokens))
    return found


def _nothing(protected: int, small: int, limits: PruneLimits) -> str:
    if protected:
        rest = f", the other {small} are too small to archive" if small else ""
        newest = {
            f"the newest {limits.keep_last}": limits.keep_last,
            f"the newest {limits.protect_tokens:,} tokens of outputs": limits.protect_tokens,
            f"those of the last {limits.protect_turns} user turns": limits.protect_turns,
        }
        named = ", ".join(name for name, amount in newest.items() if amount)
        return (
            f"Nothing done: {protected} tool outputs are protected{rest}. Protected are {named}."
            " Pass keep_last or protect_tokens to prune more: then only what you pass is protected."
        )
    if small:
        return f"Nothing done: the {small} tool outputs left are too small to be worth a placeholder."
    return "Nothing done: the view holds no tool output that is not archived already."


@dataclass(frozen=True, slots=True)
class CacheEffect:
    """`rewritten` tokens follow the first change and are written to the prompt cache again; after `requests` more
    requests the saving exceeds that cost."""

    rewritten: int
    requests: float


def cache_effect(after: Sequence[Entry], first_changed_seq: int, saved: int) -> CacheEffect:
    """The effect of an edit on the prompt cache. `after` is the view with the edit, `saved` the tokens it removes."""
    rewritten = sum(entry.tokens for entry in after if entry.last_seq >= first_changed_seq)
    cost = rewritten * (CACHE_WRITE - CACHE_READ)
    return CacheEffect(rewritten, round(cost / (saved * CACHE_READ), 1) if saved > 0 else float(rewritten))


def prune_limits(snapshot: SessionSnapshot, options: PruneOptions) -> PruneLimits:
    """What a prune protects, by the caller's options and the session's settings."""
    settings, budget, minimum_tokens = snapshot.settings, snapshot.budget, options.minimum_tokens
    if options.keep_last is None and options.protect_tokens is None:
        return PruneLimits(
            settings.prune_keep_last,
            budget.prune_protect_tokens,
            settings.prune_protect_turns,
            budget.prune_minimum_tokens if minimum_tokens is None else minimum_tokens,
            settings.prune_smallest_tokens,
        )
    return PruneLimits(
        options.keep_last or 0, options.protect_tokens or 0, 0, minimum_tokens or 0, settings.prune_smallest_tokens
    )
