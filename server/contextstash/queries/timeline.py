"""A session's window over time: its content as messages were added, and what prunes and compactions removed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from contextstash.queries.receipt import MAX_CALLS, SHRINKING
from contextstash.results import Change, Timeline, TimelinePoint
from contextstash.session.access import Access
from contextstash.session.estimate import estimate_session
from contextstash.view.view import part_named
from contextstash_storage.records import Call, Event, Part, Session, TokenSum, TruncateEdit

POINTS = 200
"""Points of a timeline; each stands for a run of messages. Enough for a chart of ordinary width."""

MAX_CHANGES = 500

TOGETHER = timedelta(milliseconds=20)
"""An edit and its event are stored in one transaction, the edit first, each with the time at which it is written."""

UNRECORDED = "unrecorded"

Parts = dict[str, float]


async def timeline(access: Access, session_id: str, *, points: int = POINTS) -> Timeline:
    """The window after each run of messages, and just before and after each change. In between, the tokens of new
    messages are added to what the last change left; the last point is the present estimate. Raises
    SessionNotFoundError."""
    session = await access.read_session(session_id)
    total = session.counters.messages
    estimate = await estimate_session(access, session)
    width = max(1, -(-total // points))
    runs = _by_run(await access.store.token_sums(session_id, width))
    calls = await access.store.read_calls(session_id, limit=MAX_CALLS)
    events = (await access.store.last_events(session_id, SHRINKING, MAX_CHANGES))[::-1]
    await _apply_limits(access, session, runs, width, events)
    counted = _points(runs, width, total, [event for event in events if event.parts])
    shown = list(_with_reported(counted, [call for call in calls if call.purpose == "agent"]))
    shown.append(TimelinePoint(seq=total, parts=estimate.breakdown))
    return Timeline(
        session_id=session_id,
        usable=estimate.usable,
        points=shown,
        changes=[Change.of(event) for event in events],
    )


def _by_run(sums: Sequence[TokenSum]) -> dict[int, Parts]:
    runs: dict[int, Parts] = {}
    for each in sums:
        parts = runs.setdefault(each.run, {})
        part = part_named(each.role, each.kind, each.type).value
        parts[part] = parts.get(part, 0) + each.tokens
    return runs


async def _apply_limits(
    access: Access, session: Session, runs: dict[int, Parts], width: int, events: Sequence[Event]
) -> None:
    """Take from the runs about what the limit of one output cut when it was recorded: no view ever showed it. A later
    cut is in the parts of its event."""
    at = [event.created_at for event in events if event.kind in ("prune", "recovery") and event.created_at]
    edits = [edit for edit in await access.edits(session) if isinstance(edit, TruncateEdit)]
    limited = {edit.handle: edit for edit in edits if not _is_made_with(edit, at)}
    for output in await access.store.read_outputs(session.session_id) if limited else ():
        if edit := limited.get(output.handle):
            parts = runs.setdefault(edit.seq // width, {})
            parts[Part.TOOL_RESULTS] = parts.get(Part.TOOL_RESULTS, 0) - max(0, output.tokens - edit.tokens)


def _is_made_with(edit: TruncateEdit, at: Sequence[datetime]) -> bool:
    """Whether one of the events at these times, in order, was stored together with the edit."""
    made = edit.created_at
    place = bisect_left(at, made) if made else 0
    return made is not None and place < len(at) and at[place] - made <= TOGETHER


def _points(runs: dict[int, Parts], width: int, total: int, events: Sequence[Event]) -> Iterator[TimelinePoint]:
    held: Parts = {}
    waiting = list(events)
    for run in range(-(-total // width)):
        start, end = run * width, min(total, (run + 1) * width)
        at = start
        while waiting and waiting[0].seq <= end:
            event = waiting.pop(0)
            held = _plus(held, runs.get(run, {}), (max(at, event.seq) - at) / (end - start))
            at = max(at, event.seq)
            yield _point(at, held)
            held = dict(event.parts)
            yield _point(at, held)
        held = _plus(held, runs.get(run, {}), (end - at) / (end - start))
        yield _point(end, held)


def _with_reported(points: Iterator[TimelinePoint], calls: Sequence[Call]) -> Iterator[TimelinePoint]:
    """The points as the last reported usage before each has them: with the tokens that are in no recorded message, or
    with less of each part if the request had less, such as outputs that were cut for it."""
    waiting = list(calls)[::-1]
    unrecorded, sent = 0, 1.0
    before_seq, before = 0, 0
    for point in points:
        last = None
        while waiting and waiting[-1].request_seq < point.seq:
            last = waiting.pop()
        counted = sum(tokens for part, tokens in point.parts.items() if part != UNRECORDED)
        if last is not None:
            newer = (point.seq - last.request_seq) / max(1, point.seq - before_seq)
            known = last.prompt_tokens + min(1.0, newer) * max(0, counted - before)
            unrecorded = max(0, last.prompt_tokens - counted)
            sent = min(1.0, known / counted) if counted else 1.0
        before_seq, before = point.seq, counted
        parts = {part: round(tokens * sent) for part, tokens in point.parts.items()} if sent < 1 else dict(point.parts)
        yield point.model_copy(update={"parts": {**parts, UNRECORDED: unrecorded} if unrecorded else parts})


def _plus(held: Parts, came: Parts, share: float) -> Parts:
    return {part: held.get(part, 0) + came.get(part, 0) * share for part in {**held, **came}}


def _point(seq: int, held: Parts) -> TimelinePoint:
    return TimelinePoint(seq=seq, parts={part: round(tokens) for part, tokens in held.items() if tokens >= 1})
