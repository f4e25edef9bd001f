"""The status of a session for a person: how full its window is, with what, and what was done to it over time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from contextstash.queries.costs import SHRINKING, report_of
from contextstash.queries.sessions import title_of
from contextstash.record.output_archive import kept_outputs
from contextstash.results import Change, ContextStatus, Estimate, SummaryMade, Timeline, TimelinePoint
from contextstash.session.access import Access, estimate_messages, estimate_session
from contextstash.view.session_counters import part_named
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


POINTS = 200
"""Points of a timeline; each stands for a run of messages. Enough for a chart of ordinary width."""

MAX_CHANGES = 500

BESIDE = ("unrecorded",)
"""The parts that are in no recorded message: drawn over all of the time as they are now."""


async def timeline(access: Access, session_id: str, *, points: int = POINTS) -> Timeline:
    """The window after each run of messages, and just before and after each change. In between, the tokens of new
    messages are added to what the last change left; the last point is the present estimate. Raises
    SessionNotFoundError."""
    session = await access.read_session(session_id)
    total = session.counters.messages
    estimate = await estimate_session(access, session)
    events = (await access.store.read_log(session_id, Event, keys=SHRINKING, newest=True, limit=MAX_CHANGES))[::-1]
    beside = {name: estimate.breakdown[name] for name in BESIDE if name in estimate.breakdown}
    shown: list[TimelinePoint] = []
    held: dict[str, int] = {}
    waiting = [event for event in events if event.parts]

    def add_point(seq: int) -> None:
        parts = {part: tokens for part, tokens in held.items() if tokens}
        shown.append(TimelinePoint(seq=seq, parts={**parts, **beside}))

    def change(before: int) -> None:
        while waiting and waiting[0].seq <= before:
            event = waiting.pop(0)
            add_point(event.seq)
            held.clear()
            held.update(event.parts)
            add_point(event.seq)

    run = max(1, -(-total // points))
    async for message in access.shown_messages(session, 0, total - 1):
        change(message.seq)
        for block in message.blocks:
            part = str(part_named(message.role, message.kind, block.type))
            held[part] = held.get(part, 0) + block.tokens
        if (message.seq + 1) % run == 0:
            add_point(message.seq + 1)
    change(total)
    shown.append(TimelinePoint(seq=total, parts=estimate.breakdown))
    return Timeline(
        session_id=session_id,
        usable=estimate.usable,
        points=shown,
        changes=[Change.of(event) for event in events],
    )
