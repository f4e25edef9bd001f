"""Sessions whose requests go through the proxy: what was recorded of a request, and what of it is sent differently."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from contextstash.messages.request import is_models
from contextstash.record.messages import Batch, check_limits, ensure_session, fingerprints_of, store_batch
from contextstash.results import ProxyReport
from contextstash.session.access import Access
from contextstash.view.view import edits_in_force, known_path
from contextstash_storage.records import (
    Native,
    ProxiedSession,
    ProxiedTotals,
    Session,
    SummaryEdit,
    Usage,
)

Key = tuple[str, str]
"""An output: the id of its call, and the SHA-256 of its text. Some models count their calls again from the start in
each turn, so that the id alone is no name."""

SUMMED = tuple(ProxiedTotals.model_fields)


@dataclass(frozen=True)
class ProxiedEdits:
    """The edits of a session that its next request must show: `pins` are the texts that are sent in place of outputs,
    for the life of the session. `edits` is how many edits the session had."""

    edits: int = 0
    pins: Mapping[Key, str] = field(default_factory=dict)
    summaries: tuple[SummaryEdit, ...] = ()


async def record_request(
    access: Access,
    session_id: str,
    natives: Sequence[Native],
    *,
    since: datetime | None = None,
    usage: Usage | None = None,
    **facts: Any,
) -> Session:
    """Record the messages of a request, the whole conversation. A new session is created with these `facts`, unless
    `since` says when the session was created: then it has been deleted, and SessionNotFoundError is raised. `usage` is
    that of the last reply among the messages.

    Nothing else is done to the session: the proxy alone decides what a request shows, and automatic reductions by
    level would cost the prompt cache."""
    await asyncio.to_thread(check_limits, natives)
    stored = await (access.find(session_id) if since is None else access.store.get_session(session_id))
    last = next((place for place in reversed(range(len(natives))) if is_models(natives[place])), None)
    extras = [{"usage": usage} if usage and place == last else {} for place in range(len(natives))]
    batch = Batch(natives, whole=True, extras=extras, settings={"automatic": False}, **facts)
    session = await ensure_session(access, session_id, stored, batch)
    async with access.lock(session_id):
        return (await store_batch(access, session, batch)).session


async def positions_of(access: Access, session_id: str, natives: Sequence[Native]) -> tuple[int, ...]:
    """The positions of the recorded messages that are equal to the beginning of this list."""
    store = access.store
    edits, stored = await store.read_edits(session_id), await store.read_fingerprints(session_id)
    session = await store.get_session(session_id)
    listed = await asyncio.to_thread(fingerprints_of, access, session, natives)
    return known_path(edits, stored, listed)


async def edits_to_show(access: Access, session_id: str, first: int | None = None) -> ProxiedEdits:
    """The edits that the next request must show, or of only the `first` so many: those that no restore has undone. A
    rewind hides messages, but not the pins of their outputs: the client may go back to them."""
    edits = (await access.store.read_edits(session_id))[:first]
    overlay = edits_in_force(edits)
    shown = {place: edit.text for place, edit in overlay.replaced.items()}
    # A summary with a position is the client's own: its requests hold it already.
    summaries = tuple(edit for edit in overlay.summaries if edit.seq is None)
    return ProxiedEdits(len(edits), await _pins(access, session_id, shown) if shown else {}, summaries)


async def _pins(access: Access, session_id: str, shown: Mapping[tuple[int, int], str]) -> dict[Key, str]:
    """What is shown in place of outputs, by message and block, by the keys of these outputs."""
    store, first, last = access.store, min(shown)[0], max(shown)[0]
    messages = await store.read_messages(session_id, first=first, last=last, bodies=False)
    texts = {
        (each.seq, each.block): each.sha256 for each in await store.read_outputs(session_id, first=first, last=last)
    }
    calls = {(each.seq, place): block.call_id for each in messages for place, block in enumerate(each.blocks)}
    return {(str(calls[at]), texts[at]): text for at, text in shown.items() if calls.get(at) and at in texts}


def report_of(*states: ProxiedSession) -> ProxyReport:
    """The totals of sessions together."""
    total = ProxiedTotals(**{name: sum(getattr(state, name) for state in states) for name in SUMMED})
    return ProxyReport.of(
        total,
        tokens_sent=total.sent,
        tokens_unedited=total.direct,
        dollars_paid=round(total.dollars_paid, 4) if total.priced else None,
        dollars_saved=round(total.dollars_direct - total.dollars_paid, 4) if total.priced else None,
        unread=total.unread or None,
        left_alone=next((state.left_alone for state in states if state.left_alone), None),
    )
