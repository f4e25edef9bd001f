"""Logs what a provider reports of reasoning that it dropped, so that a person sees it."""

from __future__ import annotations

import logging

from contextstash.formats.reasoning_reports import DroppedReasoning
from contextstash.service.estimate import own_tokens
from contextstash.service.session_access import Access
from contextstash_storage.records import Event

logger = logging.getLogger(__name__)


async def log_dropped_reasoning(access: Access, session_id: str, dropped: DroppedReasoning) -> None:
    """Add an event to the session's log, which its status shows. Raises SessionNotFoundError."""
    session = await access.session(session_id)
    counters, tokens = session.counters, own_tokens(access, session)
    event = Event(
        kind="reasoning_dropped",
        tokens_before=tokens,
        tokens_after=tokens,
        messages_before=counters.view_messages,
        messages_after=counters.view_messages,
        reason=dropped.sentence,
        seq=counters.messages,
    )
    await access.store.append_event(session_id, event)
    logger.warning("%s: %s", session_id, dropped.sentence)
