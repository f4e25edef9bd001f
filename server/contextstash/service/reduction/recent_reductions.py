"""Patience: what earlier prunes and compactions of a session were worth, read from its log."""

from __future__ import annotations

from contextstash.context.window.backoff import ReductionAttempt
from contextstash.context.window.settings import ContextSettings
from contextstash.context.window.thresholds import WindowBudget
from contextstash.service.session_access import Access
from contextstash_storage.records import EventKind

LOOKED_AT = 8
"""How many of the last prunes and compactions are looked at."""


async def attempts_of(access: Access, session_id: str, *, prunes: bool = True) -> list[ReductionAttempt]:
    """The last compactions, and with `prunes` prunes too, oldest first."""
    kinds: tuple[EventKind, ...] = ("compaction", "recovery", "prune") if prunes else ("compaction", "recovery")
    events = await access.store.last_events(session_id, kinds, LOOKED_AT)
    return [ReductionAttempt(event.seq, event.tokens_before, event.tokens_after) for event in reversed(events)]


def threshold_of(budget: WindowBudget, settings: ContextSettings) -> int:
    """Above how many tokens something is done by itself."""
    marks = [budget.compact_at, budget.tokens_at if settings.compact_automatic else None, budget.prune_at]
    return min(mark for mark in marks if mark is not None)
