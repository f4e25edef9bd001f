"""Thresholds: the budget of a window, its levels, what is due at each, and when a compaction is worth it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from contextstash.window.settings import ContextSettings
from contextstash_storage.records import Counters, Level

MAX_FIXED_SHARE = 0.75
"""The share of the usable window that the fixed parts take at most when sizes are derived from the rest. With a
system prompt that fills the window, summaries and outputs must still say something."""


Size = tuple[int, int, int]
"""The default of a size in tokens: a window divided by the first number, between the second and the third."""

RESERVE = (8, 0, 32_000)
"""The reserve for the reply, of the whole window; at most that of the preset `token-budget`."""

PROTECTED, MINIMUM = (4, 0, 40_000), (10, 0, 20_000)
"""What a prune protects and what it must free, of the usable window; at most those of the preset `token-budget`."""

KEPT = (8, 0, 20_000)
"""What a compaction without a low-water mark keeps, of the usable window; at most as the preset `rolling`."""

SUMMARY = (8, 1_000, 8_000)
"""A summary, of the free window. Measured with bench/fidelity: shorter ones keep less, longer ones take the room from
the recent messages. Less cannot hold task, state and names in use; large models wrote 2,700 in recorded sessions
(median)."""

STANDING = (6, 0, 8_000)
"""The texts of files in use that follow a summary, of the free window; at most some ten functions of a few files.
Measured on recorded sessions of Claude Code: with 6 the old lines of the next edit are in view more often than with 7,
8 or 10."""

REQUEST = (4, 1_600, 4_000)
"""The first request of a session, which stays as it was written if it takes no more of the usable window: with less, a
long task is shortened, with more a pasted document stays for ever. First requests of recorded agents with long
instructions take 1,150 to 1,720 tokens."""

WORDS = (16, 300, 4_000)
"""What a compaction adds to the user's words beside the first request, of the usable window: some ten short requests at
least. Recorded users write 100 to 900 tokens in a window of 16,000."""


@dataclass(frozen=True, slots=True)
class WindowBudget:
    """A window and its thresholds, in tokens. A level starts above its threshold. `free` is what of the usable window
    the fixed parts of a session leave: its system prompt, tool definitions and unlogged text. `messages_at` (in
    messages) is a further threshold of a compaction, None if it is not used. `request_tokens` and
    `words_tokens` are for the user's words: the first request, and what else a compaction adds; `standing_tokens` for
    the texts of files in use."""

    window: int
    usable: int
    free: int
    prune_at: int
    compact_at: int
    critical_at: int
    messages_at: int | None
    prune_protect_tokens: int
    prune_minimum_tokens: int
    compact_keep_tokens: int
    low_water: int | None
    summary_tokens: int
    recovery_tokens: int
    request_tokens: int
    words_tokens: int
    standing_tokens: int


def budget_of(settings: ContextSettings, window: int, *, known: bool = True, fixed: int = 0) -> WindowBudget:
    """The budget of a window. Numbers that the settings leave open are shares of the window.
    `fixed` are the tokens of a session that no reduction removes.

    The reserve takes at most half of the window, even if the settings say more. If the window is unknown (`known` is
    False), `fallback_tokens` are usable; if these are not set either, only the number of messages triggers a
    compaction, by `fallback_messages`.
    """
    fallback = settings.fallback_tokens if not known else None
    if fallback is not None:
        window, usable = fallback, fallback
    else:
        reserve = _or(settings.output_reserve, _size(RESERVE, window))
        usable = max(1, window - min(reserve, window // 2))
    free = usable - min(fixed, _share(usable, MAX_FIXED_SHARE))
    low_water = None if settings.low_water is None else _share(usable, settings.low_water)
    summary_tokens = settings.summary_tokens or _size(SUMMARY, free)
    kept = _size(KEPT, usable) if low_water is None else max(0, low_water - summary_tokens)
    prune_at = max(1, _share(usable, settings.prune_at))
    compact_at = max(1, _share(usable, settings.compact_at) - (settings.compact_when == "reached"))
    return WindowBudget(
        window=window,
        usable=usable,
        free=free,
        prune_at=prune_at if settings.prune_at_tokens is None else min(prune_at, settings.prune_at_tokens),
        compact_at=compact_at,
        critical_at=max(compact_at, _share(usable, settings.critical_at)),
        messages_at=settings.messages_at or (None if known or fallback else settings.fallback_messages),
        prune_protect_tokens=_or(settings.prune_protect_tokens, _size(PROTECTED, usable)),
        prune_minimum_tokens=_or(settings.prune_minimum_tokens, _size(MINIMUM, usable)),
        compact_keep_tokens=min(_or(settings.compact_keep_tokens, kept), usable // 2),
        low_water=low_water,
        summary_tokens=summary_tokens,
        recovery_tokens=settings.recovery_tokens or usable // 2,
        request_tokens=min(_size(REQUEST, usable), usable // 2),
        standing_tokens=0 if low_water is None else _size(STANDING, free),
        words_tokens=_size(WORDS, usable),
    )


def _size(size: Size, window: int) -> int:
    parts, least, most = size
    return min(most, max(least, window // parts))


def _share(usable: int, share: float) -> int:
    """A share in whole tokens. The 1e-6 corrects binary fractions: 0.70 × 180,000 must be 126,000, not 125,999."""
    return int(usable * share + 1e-6)


def _or(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value


def level_of(tokens: int, budget: WindowBudget) -> Level:
    """The highest level whose threshold the tokens exceed."""
    if tokens > budget.usable:
        return "overflow"
    if tokens > budget.critical_at:
        return "critical"
    if tokens > budget.compact_at:
        return "compact"
    return "prune" if tokens > budget.prune_at else "ok"


MIN_BEYOND_KEPT = 4
"""How many messages there must be in addition to those that a compaction keeps before `messages_at` or `tokens_at`
triggers one; from the design that the preset `n-or-k` reproduces."""


class Due(NamedTuple):
    """The automatic reductions that are due."""

    prune: bool
    compact: bool


def since_summary(counters: Counters) -> int:
    """Messages since the last summary, without the system messages at the head."""
    if counters.summary_seq < 0:
        return counters.messages - counters.system_messages
    return counters.messages - 1 - counters.summary_seq


def due(counters: Counters, tokens: int, budget: WindowBudget, settings: ContextSettings) -> Due:
    """The reductions that are due in this state of a session."""
    # A compaction to the low-water mark prunes too, so that nothing is pruned below its threshold.
    in_one_step = budget.low_water is not None and settings.compact_automatic and settings.compact_by_level
    over = tokens > budget.prune_at and not in_one_step
    compact = settings.compact_by_level and tokens > budget.compact_at
    if counters.messages - counters.system_messages >= settings.compact_keep_messages + MIN_BEYOND_KEPT:
        compact |= budget.messages_at is not None and since_summary(counters) >= budget.messages_at
        compact |= settings.tokens_at is not None and tokens >= settings.tokens_at
    return Due(
        prune=settings.prune_automatic and (over or results_due(counters, settings)),
        compact=settings.compact_automatic and compact,
    )


def automatic_threshold(budget: WindowBudget, settings: ContextSettings) -> int:
    """The automatic reduction threshold in tokens: of a compaction, or of a prune if the session never compacts."""
    if not settings.compact_automatic:
        return budget.prune_at
    return budget.compact_at if settings.tokens_at is None else settings.tokens_at


def results_due(counters: Counters, settings: ContextSettings) -> bool:
    """Whether more tool results are in the view than `prune_at_results` allows."""
    maximum = settings.prune_at_results
    return maximum is not None and settings.tool_digest != "off" and counters.view_results > maximum


_NEXT_STEPS: dict[Level, str] = {
    "ok": "Nothing to do.",
    "prune": "Call prune_tool_outputs.",
    "compact": "Call prune_tool_outputs; if the level stays, write a hand-off summary and call compact_session.",
    "critical": "Call compact_session now, with a hand-off summary.",
    "overflow": "The next request will not fit: call compact_session first.",
}
_NEXT_STEPS_FOLLOWED: dict[Level, str] = {
    "ok": "Nothing to do.",
    "prune": "Large outputs fill the window; compact in the client when the task allows it.",
    "compact": "Have the client compact soon; afterwards search_history and get_archived_output retrieve details.",
    "critical": "Have the client compact now; afterwards search_history and get_archived_output retrieve details.",
    "overflow": "Have the client compact first; nothing that is recorded gets lost.",
}


def next_step(level: Level, *, followed: bool = False) -> str:
    """The next step at a level, in a sentence. A client that is followed sends its own history, so only it can
    compact."""
    return (_NEXT_STEPS_FOLLOWED if followed else _NEXT_STEPS)[level]
