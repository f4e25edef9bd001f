"""Transcripts: records the messages of a client's transcript, and what the client did to its own window as edits of the
view: compactions, rewinds and cleared tool results."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from contextstash.messages.base import Format
from contextstash.messages.detection import get_format
from contextstash.record.declared import report_late
from contextstash.record.messages import Batch, append, ensure_session, limit_problem, store_batch
from contextstash.record.transcript_records import TranscriptMessage, TranscriptSession, is_window_key
from contextstash.session.access import Access, tokens_by_part
from contextstash.session.edit import Planned, archived, edit, entries_after, log_event, retrying
from contextstash.view.ladder import starts_of
from contextstash.view.session_snapshot import summary_id
from contextstash.view.view import HOST, restored, rewinding
from contextstash_storage.errors import EditConflictError, SessionDeletedError
from contextstash_storage.records import (
    Appended,
    Counters,
    Cursor,
    Edit,
    Edited,
    EditsAfter,
    Message,
    Output,
    Part,
    Session,
    SummaryEdit,
)

logger = logging.getLogger(__name__)

PROXIED_SECONDS = 3_600.0
"""How long after a session's last request through the proxy its transcript is still passed over. A tool
that runs longer has its call recorded from the transcript too."""

COMPACTED = {
    "client": "The client compacted its own window.",
    "client_window": "contextstash compacted the client's window.",
}
"""The strategies of events that changed the client's window, the second by its plugin, with the events' reasons; all
others changed only our view."""


async def record_transcript(
    access: Access,
    transcript: TranscriptSession,
    messages: Sequence[TranscriptMessage],
    cursor: Cursor,
    *,
    wanted: bool = True,
) -> Appended:
    """Append the messages read from a transcript. The last ones and the new cursor are stored in one transaction.

    Safe to repeat after a crash at any point: messages are recognized by their keys, edits by what they cover.
    Unless it is `wanted` by the user, a deleted session is not made again: raises SessionDeletedError.
    """
    async with access.lock(transcript.session_id):
        names = [name for name in (transcript.session_id, transcript.parent_session_id) if name is not None]
        found = {name: await access.find(name) for name in names}
        known = found[transcript.session_id]
        if await _is_proxied(access, found.values(), messages):
            now, name = datetime.now(UTC), transcript.session_id
            session = known or Session(session_id=name, format=transcript.format, created_at=now, updated_at=now)
            if known is not None:  # else, as of a sub-agent, they are passed over again
                await append(access, known, [], cursor=cursor)
            return Appended(messages=(), duplicates=len(messages), session=session)
        # One that exists was never deleted, or its user brought it back.
        lost = [name for name, session in found.items() if session is None and known is None and not wanted]
        if any([await access.was_deleted(name) for name in lost]):
            raise SessionDeletedError("The session was deleted here.")
        return await _recorded(access, transcript, known, messages, cursor)


async def _recorded(
    access: Access,
    transcript: TranscriptSession,
    known: Session | None,
    messages: Sequence[TranscriptMessage],
    cursor: Cursor,
) -> Appended:
    messages = _recordable(messages, get_format(transcript.format))
    batch = Batch(
        messages=[message.body for message in messages],
        whole=transcript.whole,  # else told by their keys
        extras=[_extra(message, hidden=False) for message in messages],
        format=transcript.format,
        model=transcript.model or next((m.model for m in reversed(messages) if m.model), None),
        agent=transcript.agent,
        title=transcript.title,
        source=transcript.source,
        parent_session_id=transcript.parent_session_id,
    )
    session = await ensure_session(access, transcript.session_id, known, batch)
    if transcript.late_usage is not None:
        session = await report_late(access, session, *transcript.late_usage)
    window = transcript.window
    if window is not None and window != session.counters.host_window:  # the client says that it uses it
        session = await access.store.change_session(
            session.session_id, lambda counters: counters.model_copy(update={"host_window": window})
        )
    if transcript.whole:
        appended = await store_batch(access, session, batch)
        # Should the cursor not move now, all of them are known when they are read again.
        await append(access, appended.session, [], cursor=cursor)
        return appended
    return await _append_runs(access, session, _runs(messages), cursor)


async def _append_runs(
    access: Access, session: Session, runs: Sequence[Sequence[TranscriptMessage]], cursor: Cursor
) -> Appended:
    """Append the messages run by run, each after what the client did to its window before it."""
    messages: tuple[Message, ...] = ()
    duplicates = 0
    for left, run in zip(reversed(range(len(runs))), runs, strict=True):
        if run:
            await mirror_before(access, session, run[0])
        part = await retrying(partial(_append_run, access, session, run, None if left else cursor))
        if part.messages and part.messages[-1].kind == "summary":
            # A reader that ends before this has stored the compaction without its event.
            summary = part.messages[-1]
            before, after = [sum((await tokens_by_part(access, each)).values()) for each in (session, part.session)]
            facts = {"messages_before": session.counters.view_messages, "created_at": summary.created_at}
            await log_compaction(access, part.session, before, after, ours=is_window_key(summary.key), **facts)
        messages, duplicates, session = messages + part.messages, duplicates + part.duplicates, part.session
    return Appended(messages=messages, duplicates=duplicates, session=session)


async def _is_proxied(
    access: Access, sessions: Iterable[Session | None], messages: Sequence[TranscriptMessage]
) -> bool:
    """Whether the proxy records these messages, for one of these sessions: it sees the requests themselves, and a
    session is stored once. Messages written long after its last request are recorded here: the client continues without
    the proxy."""
    for session in sessions:
        if session is None or session.source is not None:
            continue
        if (proxied := await access.proxied(session.session_id)) is not None:
            times = [message.created_at.timestamp() for message in messages if message.created_at is not None]
            return min(times, default=0.0) <= proxied.last_at + PROXIED_SECONDS
    return False


def _recordable(messages: Sequence[TranscriptMessage], fmt: Format) -> list[TranscriptMessage]:
    """The messages that can be recorded; one that is too large or damaged must not prevent the recording of others."""
    kept = []
    for message in messages:
        problem = limit_problem(message.body)
        if problem is None and (misfit := fmt.misfit(message.body)):
            problem = f"cannot be read: {misfit}"
        if problem is None:
            kept.append(message)
        else:
            logger.warning("skipped a message of a transcript: it %s", problem)
    return kept


def _runs(messages: Sequence[TranscriptMessage]) -> list[list[TranscriptMessage]]:
    """Split the messages before each one that reports a client edit, and before and after each of the client's
    summaries."""
    runs: list[list[TranscriptMessage]] = [[]]
    for message in messages:
        reports = message.covers_before or message.rewind_to_key is not None or bool(message.cleared_call_ids)
        if runs[-1] and (reports or runs[-1][-1].covers_before):
            runs.append([])
        runs[-1].append(message)
    return runs


async def _append_run(
    access: Access, session: Session, run: Sequence[TranscriptMessage], cursor: Cursor | None
) -> Appended:
    edits, hidden = None, False
    if run and run[-1].covers_before:
        edits, hidden = await _compaction(access, session, run[-1])
    natives, extras = [message.body for message in run], [_extra(message, hidden=hidden) for message in run]
    return await append(access, session, natives, extras=extras, cursor=cursor, edits=edits)


def _extra(message: TranscriptMessage, *, hidden: bool) -> dict[str, object]:
    """`hidden`: the view does not show the message at its own position."""
    given = {
        **{name: getattr(message, name) for name in ("key", "group", "usage", "model")},
        "created_at": message.created_at or datetime.now(UTC),
        "kind": "summary" if message.covers_before else "host" if message.by_host else None,
        "agent_visible": False if hidden else None,
    }
    return {name: value for name, value in given.items() if value is not None}


# What a client did to its own window.


async def mirror_before(access: Access, session: Session, message: TranscriptMessage) -> None:
    """Record what the client did to its window before this message. Safe to repeat."""
    session_id = session.session_id
    if not session.counters.messages:
        return
    if message.rewind_to_key is not None:
        await edit(access, lambda: _rewind(access, session_id, message))
    if message.cleared_call_ids:
        await edit(access, lambda: _clear(access, session_id, frozenset(message.cleared_call_ids)))


async def _compaction(access: Access, session: Session, message: TranscriptMessage) -> tuple[EditsAfter, bool]:
    """The edits that replace what a client compacted with its summary, this message; and whether some messages stay
    behind it, so that it is not shown at its own position. To store such edits raises EditConflictError if the session
    has changed meanwhile."""
    text = "\n".join(get_format(session.format).read(message.body).texts)
    key = message.covers_before_key
    before = None if key is None else await access.store.find_key(session.session_id, key)
    if before is None:
        return partial(_whole_compaction, text), False
    snapshot = await access.snapshot(session.session_id)
    own = snapshot.session.counters.messages
    # Our own summary is undone if it hides messages that the client kept.
    undone = [edit for edit in snapshot.overlay.summaries if edit.first_seq < before <= edit.last_seq]
    entries = await entries_after(access, snapshot, restored(undone)) if undone else list(snapshot.entries)
    # The last position before which no tool call is separated from its result.
    last = max((start for start in starts_of(entries) if start <= before), default=0) - 1
    if last < 0:
        return partial(_whole_compaction, text), False
    tokens = snapshot.counter.count(text) + snapshot.settings.message_overhead
    edits: list[Edit] = [*restored(undone), _summary(text, last, tokens, at=own, created_at=message.created_at)]
    change = snapshot.counters_after(await entries_after(access, snapshot, edits), own=False)

    def unchanged(counters: Counters, stored: tuple[Message, ...]) -> Edited:
        if (counters.messages - len(stored), counters.edits) != (own, len(snapshot.edits)):
            raise EditConflictError("The session changed while its client's compaction was being recorded.")
        return edits, change(counters)

    return unchanged, True


def _whole_compaction(text: str, counters: Counters, stored: tuple[Message, ...]) -> Edited:
    """The edit that replaces everything up to a client's summary, the newest message, with that summary."""
    last = stored[-1]
    alone = {"parts": {Part.SUMMARIES: last.tokens}, "view_messages": 1, "view_results": 0, "own": {}}
    edit = _summary(text, last.seq, last.tokens, at=last.seq, created_at=last.created_at)
    return [edit], counters.model_copy(update={**alone, "summary_seq": last.seq})


async def log_compaction(
    access: Access, session: Session, before: int, after: int, *, ours: bool, **facts: Any
) -> None:
    """Log a compaction of the client's window from so many tokens to so many, by the client or by us, as an event with
    these further fields."""
    strategy = "client_window" if ours else "client"
    facts |= {"messages_after": session.counters.view_messages, "parts": await tokens_by_part(access, session)}
    await log_event(access, session, "compaction", before, after, COMPACTED[strategy], strategy=strategy, **facts)


def _summary(text: str, last: int, tokens: int, *, at: int, created_at: datetime | None) -> SummaryEdit:
    """`at` is the position of the client's message that holds the summary."""
    return SummaryEdit(
        seq=at,
        first_seq=0,
        last_seq=last,
        summary_id=summary_id(0, last, text),
        strategy=HOST,
        text=text,
        summary=text,
        tokens=tokens,
        created_at=created_at,
    )


async def _rewind(access: Access, session_id: str, message: TranscriptMessage) -> Planned[None] | None:
    find = access.store.find_key
    if message.key is not None and await find(session_id, message.key) is not None:
        return None
    to = await find(session_id, message.rewind_to_key) if message.rewind_to_key else -1
    snapshot = await access.snapshot(session_id)
    edits = [] if to is None else rewinding(snapshot.edits, snapshot.session.counters.messages, to)
    return Planned(snapshot, edits, lambda *_: None, own=False) if edits else None


async def _clear(access: Access, session_id: str, call_ids: frozenset[str]) -> Planned[None] | None:
    snapshot = await access.snapshot(session_id)
    shown: dict[Output, int] = {}
    for entry in snapshot.entries:
        for place, block in enumerate(entry.message.blocks if entry.message else ()):
            output = snapshot.outputs.get((entry.first_seq, place))
            if output is not None and block.call_id in call_ids and place not in entry.replaced:
                shown[output] = block.tokens
    made = await access.from_texts(snapshot, list(shown), partial(archived, snapshot))
    edits = [each.edit for each in made if each.edit.tokens < shown[each.output]]
    return Planned(snapshot, edits, lambda *_: None, own=False) if edits else None
