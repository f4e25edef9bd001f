"""Diagnosis: what filled a session's window again after a compaction, and whether the context oscillates."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from contextstash.record.client_edits import OF_CLIENTS_WINDOW
from contextstash.reduce.automatic import oscillating
from contextstash.results import Estimate
from contextstash.session.access import Access
from contextstash.session.estimate import estimate_messages, estimate_session
from contextstash.window.refill_diagnosis import refill_of, refill_sentence
from contextstash_storage.records import Native, Session


async def estimate_context(
    access: Access,
    session_id: str | None = None,
    *,
    messages: Sequence[Native] | None = None,
    model: str | None = None,
) -> Estimate:
    """How full the window is; with `messages`, the estimate for these alone, and nothing is recorded."""
    if messages is not None:
        return await asyncio.to_thread(estimate_messages, access, messages, model)
    return await estimate_with_notes(access, await access.read_session(session_id), model)


async def estimate_with_notes(access: Access, session: Session, model: str | None = None) -> Estimate:
    """The estimate; above the level `ok` also with notes on what has filled the window since the last compaction."""
    estimate = await estimate_session(access, session, model)
    if estimate.level == "ok":
        return estimate
    found = (
        _ignored(session, estimate),
        await _refilled(access, session, estimate),
        await oscillating(access, session),
    )
    notes = [note for note in found if note]
    return estimate.model_copy(update={"notes": notes or None})


def _ignored(session: Session, estimate: Estimate) -> str | None:
    """A note if the client seems to send its own history instead of our view, which makes every prune useless."""
    unrecorded = estimate.breakdown.get("unrecorded", 0)
    if session.source is not None or not session.counters.own or unrecorded <= estimate.usable // 2:
        return None
    return (
        f"The provider reports {unrecorded:,} tokens that are in no recorded message or were pruned: large tool"
        " definitions, or a client that does not send what get_context returns."
    )


async def _refilled(access: Access, session: Session, estimate: Estimate) -> str | None:
    events = await access.store.last_events(session.session_id, ("compaction", "recovery"), 1)
    if not events or not events[0].parts:
        return None
    if session.source is not None and events[0].strategy not in OF_CLIENTS_WINDOW:
        return None  # it changed only our view: the client's window was not emptied
    [event] = events
    outputs = await access.store.read_outputs(session.session_id, first=event.seq)
    refill = refill_of(event.parts, estimate.breakdown, messages=session.counters.messages - event.seq, outputs=outputs)
    return refill_sentence(refill) if refill.tokens > 0 else None
