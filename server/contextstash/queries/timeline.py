"""A session's window over time: its content as messages were added, and what prunes and compactions removed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from contextstash.queries.receipt import SHRINKING
from contextstash.results import Change, Timeline, TimelinePoint
from contextstash.session.access import Access
from contextstash.session.estimate import estimate_session
from contextstash.view.session_counters import part_named
from contextstash_storage.records import Event, Session

POINTS = 200
"""Points of a timeline; each stands for a run of messages. Enough for a chart of ordinary width."""

MAX_CHANGES = 500

BESIDE = ("unrecorded",)
"""The parts that are in no recorded message: drawn over all of the time as they are now."""

Parts = dict[str, float]


async def timeline(access: Access, session_id: str, *, points: int = POINTS) -> Timeline:
    """The window after each run of messages, and just before and after each change. In between, the tokens of new
    messages are added to what the last change left; the last point is the present estimate. Raises
    SessionNotFoundError."""
    session = await access.read_session(session_id)
    total = session.counters.messages
    estimate = await estimate_session(access, session)
    width = max(1, -(-total // points))
    runs = await _by_run(access, session, width)
    events = (await access.store.read_log(session_id, Event, keys=SHRINKING, newest=True, limit=MAX_CHANGES))[::-1]
    beside = {name: estimate.breakdown[name] for name in BESIDE if name in estimate.breakdown}
    shown = [
        TimelinePoint(
            seq=seq, parts={**{part: round(tokens) for part, tokens in held.items() if tokens >= 1}, **beside}
        )
        for seq, held in _points(runs, width, total, [event for event in events if event.parts])
    ]
    shown.append(TimelinePoint(seq=total, parts=estimate.breakdown))
    return Timeline(
        session_id=session_id,
        usable=estimate.usable,
        points=shown,
        changes=[Change.of(event) for event in events],
    )


async def _by_run(access: Access, session: Session, width: int) -> dict[int, Parts]:
    """The tokens that the model saw of the history, by part, in each run of `width` messages."""
    runs: dict[int, Parts] = {}
    async for message in access.shown_messages(session, 0, session.counters.messages - 1):
        parts = runs.setdefault(message.seq // width, {})
        for block in message.blocks:
            part = part_named(message.role, message.kind, block.type).value
            parts[part] = parts.get(part, 0) + block.tokens
    return runs


def _points(runs: dict[int, Parts], width: int, total: int, events: Sequence[Event]) -> Iterator[tuple[int, Parts]]:
    """How many messages were recorded, and the tokens by part then."""
    held: Parts = {}
    waiting = list(events)
    for run in range(-(-total // width)):
        start, end = run * width, min(total, (run + 1) * width)
        at = start
        while waiting and waiting[0].seq <= end:
            event = waiting.pop(0)
            held = _plus(held, runs.get(run, {}), (max(at, event.seq) - at) / (end - start))
            at = max(at, event.seq)
            yield at, held
            held = dict(event.parts)
            yield at, held
        held = _plus(held, runs.get(run, {}), (end - at) / (end - start))
        yield end, held


def _plus(held: Parts, came: Parts, share: float) -> Parts:
    return {part: held.get(part, 0) + came.get(part, 0) * share for part in {**held, **came}}
