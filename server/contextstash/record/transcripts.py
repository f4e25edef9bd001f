"""Transcripts: records the messages of a client's transcript, and what the client did to its own window."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import partial

from contextstash.messages import get_format
from contextstash.messages.base import Format
from contextstash.record.batches import Batch, ensure_session, store_batch
from contextstash.record.client_edits import log_compaction, mirror_before, partial_compaction, whole_compaction
from contextstash.record.messages import append, limit_problem
from contextstash.record.transcript_records import TranscriptMessage, TranscriptSession
from contextstash.record.usage import report_late
from contextstash.session.access import Access
from contextstash.session.edit import retrying
from contextstash_storage.errors import BadMessageError, SessionDeletedError, SessionNotFoundError
from contextstash_storage.records import Appended, Cursor, EditsAfter, Session

logger = logging.getLogger(__name__)

PROXIED_SECONDS = 3_600.0
"""How long after a session's last request through the proxy its transcript is still passed over. A tool
that runs longer has its call recorded from the transcript too."""


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
            return await _passed_over(access, transcript.session_id, known, messages, cursor)
        if known is None and not wanted:
            await _check_not_deleted(access, [name for name, session in found.items() if session is None])
        messages = _recordable(messages, get_format(transcript.format))
        batch = _batch_of(transcript, messages)
        session, batch = await ensure_session(access, transcript.session_id, known, batch)
        if transcript.late_usage is not None:
            session = await report_late(access, session, *transcript.late_usage)
        session = await _with_window(access, session, transcript.window)
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
    total = Appended(messages=(), duplicates=0, session=session)
    for left, run in zip(reversed(range(len(runs))), runs, strict=True):
        if run:
            await mirror_before(access, total.session, run[0])
        part = await retrying(partial(_append_run, access, total.session, run, None if left else cursor))
        if run and run[-1].covers_before and part.messages:
            await log_compaction(access, total.session, part)
        total = Appended(
            messages=total.messages + part.messages,
            duplicates=total.duplicates + part.duplicates,
            session=part.session,
        )
    return total


def _batch_of(transcript: TranscriptSession, messages: Sequence[TranscriptMessage]) -> Batch:
    """The messages of a transcript as a batch, which one that is not the whole conversation tells by their keys."""
    return Batch(
        messages=[message.body for message in messages],
        whole=transcript.whole,
        extras=[_extra(message, hidden=False) for message in messages],
        format=transcript.format,
        model=transcript.model or next((m.model for m in reversed(messages) if m.model), None),
        agent=transcript.agent,
        title=transcript.title,
        source=transcript.source,
        parent_session_id=transcript.parent_session_id,
    )


async def _check_not_deleted(access: Access, lost: Sequence[str]) -> None:
    """Raises SessionDeletedError if one of these sessions, which do not exist, was deleted. One that exists was never
    deleted, or its user brought it back."""
    if any([await access.was_deleted(name) for name in lost]):
        raise SessionDeletedError("The session was deleted here.")


async def _with_window(access: Access, session: Session, window: int | None) -> Session:
    """The session, with the window that its client says it uses."""
    if window is None or window == session.counters.host_window:
        return session
    return await access.store.change_counters(
        session.session_id, lambda counters: counters.model_copy(update={"host_window": window})
    )


async def _is_proxied(
    access: Access, sessions: Iterable[Session | None], messages: Sequence[TranscriptMessage]
) -> bool:
    """Whether the proxy records these messages, for one of these sessions: it sees the requests themselves, and a
    session is stored once. Messages written long after its last request are recorded here: the client continues without
    the proxy."""
    for session in sessions:
        if session is None or session.source is not None:
            continue
        try:
            proxied = await access.store.get_proxied(session.session_id)
        except SessionNotFoundError:  # deleted meanwhile
            continue
        if proxied is not None:
            times = [message.created_at.timestamp() for message in messages if message.created_at is not None]
            return min(times, default=0.0) <= proxied.last_at + PROXIED_SECONDS
    return False


async def _passed_over(
    access: Access, session_id: str, session: Session | None, messages: Sequence[TranscriptMessage], cursor: Cursor
) -> Appended:
    """Move the cursor past messages that the proxy records. The session of a sub-agent of a proxied one may not exist:
    then the cursor stays, and the same messages are passed over again."""
    if session is None:
        now = datetime.now(UTC)
        session = Session(session_id=session_id, format="anthropic", created_at=now, updated_at=now)
    else:
        await append(access, session, [], cursor=cursor)
    return Appended(messages=(), duplicates=len(messages), session=session)


def _recordable(messages: Sequence[TranscriptMessage], fmt: Format) -> list[TranscriptMessage]:
    """The messages that can be recorded; one that is too large or damaged must not prevent the recording of others."""
    kept = []
    for message in messages:
        problem = limit_problem(message.body)
        if problem is None:
            try:
                fmt.read(message.body)
            except BadMessageError as error:
                problem = f"cannot be read: {error}"
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
        if runs[-1] and (message.covers_before or message.reports_client_edit):
            runs.append([])
        runs[-1].append(message)
        if message.covers_before:
            runs.append([])
    return runs if runs[-1] or len(runs) == 1 else runs[:-1]


async def _append_run(
    access: Access, session: Session, run: Sequence[TranscriptMessage], cursor: Cursor | None
) -> Appended:
    edits: EditsAfter | None = None
    hidden = False
    if run and run[-1].covers_before:
        text = "\n".join(get_format(session.format).read(run[-1].body).texts)
        if run[-1].covers_before_key is not None or run[-1].covers_after_key is not None:
            edits = await partial_compaction(access, session, run[-1], text)
        hidden = edits is not None
        edits = edits or whole_compaction(text)
    return await append(
        access,
        session,
        [message.body for message in run],
        extras=[_extra(message, hidden=hidden) for message in run],
        cursor=cursor,
        edits=edits,
    )


def _extra(message: TranscriptMessage, *, hidden: bool) -> dict[str, object]:
    """`hidden`: the view does not show the message at its own position."""
    given = {
        "key": message.key,
        "group": message.group,
        "usage": message.usage,
        "model": message.model,
        "created_at": message.created_at or datetime.now(UTC),
        "kind": "summary" if message.covers_before else "host" if message.by_host else None,
        "agent_visible": False if hidden else None,
    }
    return {name: value for name, value in given.items() if value is not None}
