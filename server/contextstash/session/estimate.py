"""Estimates: how full a session's window is, by what method, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from contextstash.messages.detection import detect_format, get_format
from contextstash.results import Estimate, Trigger
from contextstash.session.access import Access
from contextstash.view import session_counters as counting
from contextstash.window import thresholds
from contextstash.window.settings import ContextSettings
from contextstash.window.thresholds import WindowBudget
from contextstash.window.token_counters import measure
from contextstash_storage.records import Counters, Native, NewMessage, Session


async def estimate_session(access: Access, session: Session, model: str | None = None) -> Estimate:
    """The estimate from the session's running counters alone, so that it takes the same time for a session of any
    length."""
    settings = access.settings(session)
    model = model or session.model
    budget = access.budget(settings, model, session)
    counter = access.counter(settings, model)
    counters = session.counters
    followed = await access.sends_own_history(session)
    tokens, method = counting.estimate(counters, settings, counter.name, followed=followed)
    return Estimate(
        session_id=session.session_id,
        view_tokens=counters.view_tokens if followed else None,
        **_measures(tokens, budget, settings, since=thresholds.since_summary(counters), followed=followed),
        method=method,
        model=model,
        breakdown=counting.breakdown(counters, tokens, followed=followed),
    )


async def tokens_by_part(access: Access, session: Session) -> dict[str, int]:
    """The tokens of an estimate by part. Asks for no window: to load the table of models takes longer than the rest."""
    counters, settings = session.counters, access.settings(session)
    followed = await access.sends_own_history(session)
    name = access.counter(settings, session.model).name
    return counting.breakdown(
        counters, counting.estimate(counters, settings, name, followed=followed)[0], followed=followed
    )


def estimate_messages(access: Access, natives: Sequence[Native], model: str | None) -> Estimate:
    """The estimate for these messages alone; nothing is recorded."""
    settings = access.settings()
    budget: WindowBudget = access.budget(settings, model)
    counter = access.counter(settings, model)
    fmt = get_format(detect_format(natives))
    counters = Counters()
    for seq, native in enumerate(natives):
        reading = fmt.read(native)
        message = NewMessage(
            body=native,
            role=reading.role,
            blocks=measure(reading, counter, settings),
            usage=reading.usage,
            group=reading.group,
        )
        counters = counting.count_message(counters, message, seq)
    tokens, method = counting.estimate(counters, settings, counter.name)
    return Estimate(
        **_measures(tokens, budget, settings, since=len(natives)),
        method=method,
        model=model,
        breakdown=counting.breakdown(counters, tokens),
    )


def _measures(
    tokens: int, budget: WindowBudget, settings: ContextSettings, *, since: int, followed: bool = False
) -> dict[str, Any]:
    """The fields of an estimate that follow from its tokens; `since` is the number of messages since a summary."""
    level = thresholds.level_of(tokens, budget)
    return {
        "tokens": tokens,
        "window": budget.window,
        "usable": budget.usable,
        "percent": thresholds.percent_of(tokens, budget),
        "level": level,
        "messages_trigger": _trigger(since, budget.messages_at) if budget.messages_at else None,
        "tokens_trigger": _trigger(tokens, thresholds.automatic_threshold(budget, settings)),
        "next_step": thresholds.next_step(level, followed=followed),
    }


def _trigger(value: int, threshold: int) -> Trigger:
    return Trigger(value=value, threshold=threshold, percent=round(100 * value / threshold, 1))
