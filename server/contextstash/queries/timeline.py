"""A session's window over time: its content as messages were added, and what prunes and compactions removed."""

from __future__ import annotations

from contextstash.queries.receipt import SHRINKING
from contextstash.results import Change, Timeline, TimelinePoint
from contextstash.session.access import Access
from contextstash.session.estimate import estimate_session
from contextstash.view.session_counters import part_of
from contextstash_storage.records import Event

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
            part = str(part_of(message, block))
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
