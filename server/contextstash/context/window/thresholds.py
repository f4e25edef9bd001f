"""Triggers: the budget a window gives, the levels in it, and what to do at each."""

from __future__ import annotations

from dataclasses import dataclass

from contextstash.context.window.settings import ContextSettings
from contextstash_storage.records import Counters, Level


@dataclass(frozen=True, slots=True)
class WindowBudget:
    """A window in numbers, all in tokens. A level begins above its mark. `messages_at` and `tokens_at` are the two
    other triggers of a compaction, None if they are not used."""

    window: int
    usable: int
    prune_at: int
    compact_at: int
    critical_at: int
    messages_at: int | None
    tokens_at: int | None
    prune_protect_tokens: int
    prune_minimum_tokens: int
    compact_keep_tokens: int
    recovery_tokens: int


def budget_of(settings: ContextSettings, window: int, *, known: bool = True) -> WindowBudget:
    """The numbers that follow from a window, if the settings leave them open.

    The reserve takes no more than half of the window, however large it is set. Where nobody knows the window (`known`
    is False), `fallback_tokens` are usable, if that is set; if not, the messages alone decide, by
    `fallback_messages`.
    """
    fallback = settings.fallback_tokens if not known else None
    if fallback is not None:
        window, usable = fallback, fallback
    else:
        reserve = min(32_000, window // 8) if settings.output_reserve is None else settings.output_reserve
        usable = max(1, window - min(reserve, window // 2))
    prune_at = max(1, _share(usable, settings.prune_at))
    compact_at = max(1, _share(usable, settings.compact_at) - (settings.compact_when == "reached"))
    return WindowBudget(
        window=window,
        usable=usable,
        prune_at=prune_at if settings.prune_at_tokens is None else min(prune_at, settings.prune_at_tokens),
        compact_at=compact_at,
        critical_at=max(compact_at, _share(usable, settings.critical_at)),
        messages_at=settings.messages_at or (None if known or fallback else settings.fallback_messages),
        tokens_at=settings.tokens_at,
        prune_protect_tokens=_or(settings.prune_protect_tokens, min(40_000, usable // 4)),
        prune_minimum_tokens=_or(settings.prune_minimum_tokens, min(20_000, usable // 10)),
        compact_keep_tokens=_keep_tokens(settings, usable),
        recovery_tokens=_or(settings.recovery_tokens, usable // 2),
    )


def _share(usable: int, share: float) -> int:
    """Whole tokens of a share; 70 % of 180,000 are 126,000, which binary fractions fall short of."""
    return int(usable * share + 1e-6)


def _keep_tokens(settings: ContextSettings, usable: int) -> int:
    kept = _or(settings.compact_keep_tokens, min(20_000, usable // 8))
    return min(kept, usable // 2)


def _or(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value


def level_of(tokens: int, budget: WindowBudget) -> Level:
    """The highest level whose mark the tokens are above."""
    if tokens > budget.usable:
        return "overflow"
    if tokens > budget.critical_at:
        return "critical"
    if tokens > budget.compact_at:
        return "compact"
    return "prune" if tokens > budget.prune_at else "ok"


ENOUGH_BEYOND_KEPT = 4
"""By how many messages a session must exceed those a compaction keeps before N or K is heeded (parent design)."""


@dataclass(frozen=True, slots=True)
class Due:
    """What is to be done by itself, each with its reason; None if nothing is."""

    prune: str | None = None
    compact: str | None = None


def since_summary(counters: Counters) -> int:
    """Messages since the last summary, system messages at the head not counted."""
    if counters.summary_seq < 0:
        return counters.messages - counters.system_messages
    return counters.messages - 1 - counters.summary_seq


def due(counters: Counters, tokens: int, budget: WindowBudget, settings: ContextSettings) -> Due:
    """What the triggers ask for at this state of a session."""
    return Due(
        prune=_prune_due(counters, tokens, budget, settings) if settings.prune_automatic else None,
        compact=_compact_due(counters, tokens, budget, settings) if settings.compact_automatic else None,
    )


def tokens_mark(budget: WindowBudget, settings: ContextSettings) -> int:
    """From how many tokens on something is done by itself that shrinks the view for good."""
    if not settings.compact_automatic:
        return budget.prune_at
    return budget.compact_at if budget.tokens_at is None else budget.tokens_at


def results_due(counters: Counters, settings: ContextSettings) -> bool:
    """Whether more tool results are in the view than `prune_at_results` allows."""
    most = settings.prune_at_results
    return most is not None and settings.tool_digest != "off" and counters.view_results > most


def _prune_due(counters: Counters, tokens: int, budget: WindowBudget, settings: ContextSettings) -> str | None:
    if results_due(counters, settings):
        return f"{counters.view_results} tool results are over {settings.prune_at_results}"
    if tokens > budget.prune_at:
        return f"{tokens:,} tokens are over {budget.prune_at:,}"
    return None


def _compact_due(counters: Counters, tokens: int, budget: WindowBudget, settings: ContextSettings) -> str | None:
    if settings.compact_by_level and tokens > budget.compact_at:
        return f"{tokens:,} tokens are over {budget.compact_at:,}"
    if counters.messages - counters.system_messages < settings.compact_keep_messages + ENOUGH_BEYOND_KEPT:
        return None
    since = since_summary(counters)
    if budget.messages_at is not None and since >= budget.messages_at:
        return f"{since} messages since the last summary reach {budget.messages_at}"
    if budget.tokens_at is not None and tokens >= budget.tokens_at:
        return f"{tokens:,} tokens reach {budget.tokens_at:,}"
    return None


def percent_of(tokens: int, budget: WindowBudget) -> float:
    """Tokens in percent of the usable window, to one decimal."""
    return round(100 * tokens / budget.usable, 1)


_NEXT_STEPS: dict[Level, str] = {
    "ok": "Nothing to do.",
    "prune": "Call prune_tool_outputs.",
    "compact": "Call prune_tool_outputs; if the level stays, write a hand-off summary and call compact_session.",
    "critical": "Call compact_session now, with a hand-off summary.",
    "overflow": "The next request will not fit: call compact_session before it.",
}
_NEXT_STEPS_FOLLOWED: dict[Level, str] = {
    "ok": "Nothing to do.",
    "prune": "Large outputs fill the window; compact in the client when the task allows.",
    "compact": "Have the client compact soon; afterwards search_history and get_archived_output bring details back.",
    "critical": "Have the client compact now; afterwards search_history and get_archived_output bring details back.",
    "overflow": "Have the client compact before anything else; nothing recorded is lost by it.",
}


def next_step(level: Level, *, followed: bool = False) -> str:
    """What to do at a level, in a sentence. A client that is followed empties its window itself."""
    return (_NEXT_STEPS_FOLLOWED if followed else _NEXT_STEPS)[level]
