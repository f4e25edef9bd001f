"""Which tool outputs to archive: pure planning over a view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from contextstash.context.view import Entry, output_tokens
from contextstash_storage.records import Output

CACHE_WRITE = 1.25
CACHE_READ = 0.10
"""Price of writing to and of reading from the prompt cache, in prices of a plain input token
(Anthropic's five-minute cache)."""

SMALL_OUTPUT_TOKENS = 150
"""An output below this is not worth a placeholder of some 50 tokens: it often holds the one fact that matters."""


@dataclass(frozen=True, slots=True)
class PruneLimits:
    """What a prune may touch, in effective numbers (see ContextSettings)."""

    keep_last: int
    protect_tokens: int
    protect_turns: int
    minimum_tokens: int
    smallest: int = SMALL_OUTPUT_TOKENS


@dataclass(frozen=True, slots=True)
class Candidate:
    """An output chosen for the archive, and what it costs in the view now."""

    output: Output
    view_tokens: int


@dataclass(frozen=True, slots=True)
class PrunePlan:
    """`chosen` in order of position; empty where `reason` says why nothing is worth doing."""

    chosen: tuple[Candidate, ...]
    tokens: int
    reason: str


def plan_prune(entries: Sequence[Entry], outputs: Mapping[tuple[int, int], Output], limits: PruneLimits) -> PrunePlan:
    """Walk back from the newest output, skip what is protected, take the rest in one batch.

    An output counts as protected while fewer than `protect_turns` user turns lie after it, while it is among
    the `keep_last` newest, or while the outputs from it to the end add up to no more than `protect_tokens`.
    The batch is taken only if it frees more than `minimum_tokens`.
    """
    turns = seen = total = protected = small = 0
    chosen: list[Candidate] = []
    for entry in reversed(entries):
        turns += entry.is_user_turn
        for output, tokens in _visible_outputs(entry, outputs):
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
                chosen.append(Candidate(output, tokens))
    freed = sum(candidate.view_tokens for candidate in chosen)
    if not chosen:
        return PrunePlan((), 0, _nothing(protected, small))
    if freed <= limits.minimum_tokens:
        return PrunePlan(
            (),
            0,
            f"Nothing done: pruning {len(chosen)} outputs would free about {freed:,} tokens, not more than the minimum"
            f" of {limits.minimum_tokens:,} that pays for the broken prompt cache."
            " Pass minimum_tokens=0 to prune all the same.",
        )
    plural = "s" if len(chosen) > 1 else ""
    return PrunePlan(tuple(reversed(chosen)), freed, f"Archived {len(chosen)} tool output{plural}.")


def _visible_outputs(entry: Entry, outputs: Mapping[tuple[int, int], Output]) -> list[tuple[Output, int]]:
    message = entry.message
    if message is None:
        return []
    places = range(len(message.blocks) - 1, -1, -1)
    return [
        (outputs[message.seq, place], output_tokens(message, place))
        for place in places
        if (message.seq, place) in outputs and not _is_archived(entry, place)
    ]


def _is_archived(entry: Entry, place: int) -> bool:
    return place in entry.replaced and entry.replaced[place].kind == "archive"


def _nothing(protected: int, small: int) -> str:
    if protected:
        rest = f", the other {small} are too small to be worth it" if small else ""
        return (
            f"Nothing done: {protected} tool outputs are recent enough to be protected{rest}."
            " Pass a smaller keep_last to prune more."
        )
    if small:
        return f"Nothing done: the {small} tool outputs left are too small to be worth a placeholder."
    return "Nothing done: the view holds no tool output that is not archived already."


@dataclass(frozen=True, slots=True)
class CacheEffect:
    """`rewritten` tokens stand after the first change and go to the prompt cache anew;
    after `requests` more requests the saving has paid for that."""

    rewritten: int
    requests: float


def cache_effect(after: Sequence[Entry], first_changed_seq: int, saved: int) -> CacheEffect:
    """What an edit does to the prompt cache. `after` is the view with the edit, `saved` its tokens gone."""
    rewritten = sum(entry.tokens for entry in after if entry.last_seq >= first_changed_seq)
    cost = rewritten * (CACHE_WRITE - CACHE_READ)
    return CacheEffect(rewritten, round(cost / (saved * CACHE_READ), 1) if saved > 0 else float(rewritten))
