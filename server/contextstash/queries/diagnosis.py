"""Diagnosis: what filled a session's window again after a compaction, and whether the window is too small."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from contextstash.record.client_edits import OF_CLIENTS_WINDOW
from contextstash.results import Estimate
from contextstash.session.access import Access
from contextstash.session.estimate import estimate_messages, estimate_session
from contextstash.window.refills import rapid_compactions, refill_advice, refill_sentence
from contextstash_storage.records import Event, Native, Session

MAX_COMPACTIONS = 8
"""How many of the last compactions are looked at for those that came too soon."""


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
    events = await access.store.last_events(session.session_id, ("compaction", "recovery"), MAX_COMPACTIONS)
    rapid = rapid_compactions([event.seq for event in events])
    found = (
        _ignored(session, estimate),
        await _refilled(access, session, estimate, events[0]) if events else None,
        refill_advice(rapid, estimate.window),
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


async def _refilled(access: Access, session: Session, estimate: Estimate, last: Event) -> str | None:
    if not last.parts or (session.source is not None and last.strategy not in OF_CLIENTS_WINDOW):
        return None  # of a client it changed only our view: the client's window was not emptied
    outputs = await access.store.read_outputs(session.session_id, first=last.seq)
    messages = session.counters.messages - last.seq
    return refill_sentence(last.parts, estimate.breakdown, messages=messages, outputs=outputs)
