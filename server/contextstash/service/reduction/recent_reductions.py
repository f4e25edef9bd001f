"""The last prunes and compactions of a session and what they saved, read from its log."""

from __future__ import annotations

from contextstash.context.window.backoff import ReductionAttempt
from contextstash.service.session_access import Access
from contextstash_storage.records import EventKind

MAX_ATTEMPTS = 8
"""Prunes and compactions that are read. An oscillation needs 3 in a row (backoff.TIMES), the back-off reaches its
maximum after 4; the rest is a margin for prunes and compactions that count as one attempt."""


async def attempts_of(access: Access, session_id: str, *, prunes: bool = True) -> list[ReductionAttempt]:
    """The last compactions, and with `prunes` also the last prunes, oldest first."""
    kinds: tuple[EventKind, ...] = ("compaction", "recovery", "prune") if prunes else ("compaction", "recovery")
    events = await access.store.last_events(session_id, kinds, MAX_ATTEMPTS)
    return [ReductionAttempt(event.seq, event.tokens_before, event.tokens_after) for event in reversed(events)]
