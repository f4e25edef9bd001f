"""The status of a session's context for a person: how full it is, with what, and what was done to it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from contextstash.queries.receipt import SHRINKING, report_of
from contextstash.queries.sessions import title_of
from contextstash.record.output_archive import kept_outputs
from contextstash.results import Change, ContextStatus, Estimate, SummaryMade
from contextstash.session.access import Access
from contextstash.session.estimate import estimate_messages, estimate_session
from contextstash.view.view import edits_in_force
from contextstash_storage.records import ArchiveEdit, Event, Native, TruncateEdit

CHANGES_SHOWN = 12


async def context_status(access: Access, session_id: str | None = None) -> ContextStatus:
    """The estimate, the last summary, and the last changes, newest first. Raises SessionNotFoundError."""
    session = await access.read_session(session_id)
    estimate = await estimate_session(access, session)
    overlay = edits_in_force(await access.store.read_edits(session.session_id))
    summaries = overlay.summaries
    proxied = await access.proxied(session.session_id)
    events = await access.store.read_log(session.session_id, Event, keys=SHRINKING, newest=True, limit=CHANGES_SHOWN)
    cut = sum(isinstance(edit, TruncateEdit) for edit in overlay.replaced.values())
    return ContextStatus(
        session_id=session.session_id,
        title=await title_of(access, session),
        agent=session.agent,
        estimate=estimate,
        messages=session.counters.messages,
        messages_summarized=sum(edit.messages for edit in summaries),
        outputs_archived=sum(isinstance(edit, ArchiveEdit) for edit in overlay.replaced.values()),
        outputs_shortened=cut + await kept_outputs(access, session.session_id) or None,
        last_summary=SummaryMade.of(max(summaries, key=lambda edit: edit.edit_id)) if summaries else None,
        proxy=None if proxied is None else report_of(proxied),
        changes=[Change.of(event) for event in events],
    )


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
    session = await access.read_session(session_id)
    return await estimate_session(access, session, model)
