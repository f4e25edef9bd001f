"""Logs what a provider reports of reasoning that it left out of a request, so that a person sees it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from contextstash.formats.dropped_reasoning import DroppedReasoning
from contextstash.service.session_access import Access
from contextstash_storage.records import Event


async def log_dropped_reasoning(access: Access, session_id: str, dropped: Sequence[DroppedReasoning]) -> None:
    """Add an event to the session's log, which its status shows. Raises SessionNotFoundError."""
    session = await access.session(session_id)
    counted = Counter(each.reason for each in dropped)
    reasons = ", ".join(f"{reason} ({count})" for reason, count in sorted(counted.items()))
    tokens = session.counters.view_tokens
    event = Event(
        kind="reasoning",
        tokens_before=tokens,
        tokens_after=tokens,
        reason=f"The provider dropped reasoning: {reasons}.",
        seq=session.counters.messages,
    )
    await access.store.append_event(session_id, event)
