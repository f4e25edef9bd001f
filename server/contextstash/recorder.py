"""Records messages and transcripts: one batch of a session at a time, then the automatic reduction."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from contextstash.messages import detect_format, get_format
from contextstash.messages.base import Format, Reading
from contextstash.record.declared_parts import System, Tools, check_declared, declare
from contextstash.record.late_usage import book_late, find_request
from contextstash.record.messages import RecentCalls, SessionFacts, ensure_session, with_usage
from contextstash.record.output_limits import check_limits, limit_outputs
from contextstash.record.repeated_messages import REPEATED, BatchIdentity, record_batch
from contextstash.record.transcript_records import TranscriptMessage, TranscriptSession
from contextstash.record.transcripts import record_transcript
from contextstash.reduce.automatic import AutoReducer
from contextstash.results import RecordResult
from contextstash.session.session_access import Access
from contextstash_storage.errors import BadInputError, BadMessageError
from contextstash_storage.records import Appended, Cursor, Native, Session


@dataclass
class _Counted:
    """`users` counts the holder and the waiting tasks: if the lock were deleted while one of them has it, the next
    caller would get a second lock for the same session."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class SessionLocks:
    """Locks by session."""

    def __init__(self) -> None:
        self._locks: dict[str, _Counted] = {}

    def __len__(self) -> int:
        return len(self._locks)

    @asynccontextmanager
    async def of(self, session_id: str) -> AsyncIterator[None]:
        """Holds the session's lock for the block."""
        counted = self._locks.setdefault(session_id, _Counted())
        counted.users += 1
        try:
            async with counted.lock:
                yield
        finally:
            counted.users -= 1
            if not counted.users:
                del self._locks[session_id]


class Recorder:
    """Records into the sessions of one owner; batches of one session wait for each other."""

    def __init__(self, access: Access) -> None:
        self.recent = RecentCalls(access)
        self.locks = SessionLocks()
        self.reducer = AutoReducer(access)
        self._access = access

    async def record_messages(
        self,
        messages: Sequence[Native],
        *,
        session_id: str | None = None,
        first_seq: int | None = None,
        batch_id: str | None = None,
        whole: bool = False,
        format: str | None = None,
        model: str | None = None,
        agent: str | None = None,
        usage: Mapping[str, Any] | None = None,
        request_id: str | None = None,
        system: System | None = None,
        tools: Tools | None = None,
        title: str | None = None,
        parent_session_id: str | None = None,
        limits: Mapping[str, Any] | None = None,
        seen: int | None = None,
    ) -> RecordResult:
        """Store messages durably; a session that does not exist is created.

        Messages sent again are recognized by one of three arguments, never by equal text: `first_seq`, the position of
        the first message (`next_seq` of the previous result); `batch_id`, an id of this batch; `whole`, the list is
        the whole conversation, and messages that are no longer in it leave the view. Without these, all are appended.

        `usage` is the usage that the provider reported for the last reply among the messages; it is booked to the
        request `request_id`, by default the newest one that get_context returned. `system` and `tools` are sent with
        the messages and counted with them, until others are declared. `limits` override the session's limits of a
        single output for these messages. `seen` is `next_seq` of this writer's previous result: if another one has
        recorded since, what it recorded is neither continued nor hidden. Raises BadInputError then.
        """
        _check(messages, limits, system, tools)
        identity = BatchIdentity(first_seq, batch_id, whole, seen)
        facts = SessionFacts(
            format, model, agent, title, parent_session_id=parent_session_id, system=system, tools=tools
        )
        session = await self._session(session_id, messages, identity, usage, facts)
        async with self.locks.of(session.session_id):
            extras = await self._extras(session, messages, usage, request_id)
            recent = await self.recent.of(session)
            appended = await record_batch(self._access, session, messages, recent, identity, extras)
            self.recent.keep(appended.session, recent)
            if system is not None or tools is not None:
                declared = await declare(self._access, appended.session, system=system, tools=tools)
                appended = appended.model_copy(update={"session": declared})
            session = await limit_outputs(self._access, appended, limits)
            if usage is not None and not any(message.usage for message in appended.messages):
                session = await book_late(self._access, session, usage)
        return await self._recorded(appended.model_copy(update={"session": session}))

    async def _session(
        self,
        session_id: str | None,
        messages: Sequence[Native],
        identity: BatchIdentity,
        usage: Mapping[str, Any] | None,
        facts: SessionFacts,
    ) -> Session:
        """The session to record into, created if it does not exist. Raises BadInputError for a first batch that would
        be refused once its session is made: it must not leave an empty session."""
        session_id = session_id or await self._access.current_session_id()
        known = await self._access.find(session_id)
        if known is None and identity.first_seq:
            raise BadInputError(
                f"first_seq is {identity.first_seq}, but there is no session of this id yet: record its messages from"
                " position 0 on."
            )
        if known is None and usage is not None:
            with_usage(messages, get_format(facts.format or detect_format(messages)), usage)
        return await ensure_session(self._access, session_id, known, messages, facts)

    async def record_transcript(
        self,
        session: TranscriptSession,
        messages: Sequence[TranscriptMessage],
        cursor: Cursor,
        *,
        reduce: bool = True,
        wanted: bool = True,
    ) -> RecordResult:
        """Store the messages read from a client's transcript, and the position up to which it was read. Without
        `reduce` nothing is pruned or compacted automatically. Raises SessionDeletedError for a session that was
        deleted, unless it is `wanted` by the user."""
        async with self.locks.of(session.session_id):
            appended = await record_transcript(self._access, self.recent, session, messages, cursor, wanted=wanted)
        return await self._recorded(appended, reduce=reduce)

    async def check_next_request(
        self, session_id: str | None, natives: Sequence[Native], format_name: str | None
    ) -> None:
        """Raises BadInputError if the conversation for the next request lacks its last reply. It could be recorded, as
        any broken list can, but the provider would refuse the request."""
        session = await self._access.find(session_id)
        name = session.format if session else format_name
        check_reply_is_listed(get_format(name or detect_format(natives)), natives)

    async def _extras(
        self, session: Session, messages: Sequence[Native], usage: Mapping[str, Any] | None, request_id: str | None
    ) -> Sequence[Mapping[str, Any]]:
        """For each message the fields stored with it: on the reply that the usage was reported for, the usage and its
        request."""
        if usage is None:
            return [{}] * len(messages)
        extras = with_usage(messages, get_format(session.format), usage)
        if request_id is None:
            return extras
        request = await find_request(self._access, session.session_id, request_id)
        return [{**extra, "request": request.sent} if extra else extra for extra in extras]

    async def _recorded(self, appended: Appended, *, reduce: bool = True) -> RecordResult:
        written_at = appended.messages[-1].created_at if appended.messages else None
        estimate, done = await self.reducer.after_recording(appended.session, written_at, reduce=reduce)
        return RecordResult(
            session_id=appended.session.session_id,
            recorded=len(appended.messages),
            duplicates=appended.duplicates,
            next_seq=appended.session.counters.messages,
            first_seq=appended.first_seq,
            tokens=estimate.tokens,
            percent=estimate.percent,
            level=estimate.level,
            done=done,
            note=REPEATED if appended.repeats else None,
        )


def _check(
    messages: Sequence[Native], limits: Mapping[str, Any] | None, system: System | None, tools: Tools | None
) -> None:
    """Raises BadInputError if an argument is invalid."""
    if limits is not None:
        check_limits(limits)
    if system is not None or tools is not None:
        check_declared(system, tools)
    if not messages:
        raise BadInputError("messages is empty: pass at least one message as its provider writes it.")


def check_reply_is_listed(fmt: Format, natives: Sequence[Native]) -> None:
    """Raises BadInputError if a result behind the last reply has no call in front of it. Older results are not looked
    at: clients shorten their lists. Of a list that is right, only the end is read."""
    missing: set[str] = set()
    is_end = True
    for native in reversed(natives):
        read = _reading(fmt, native)
        is_end = is_end and (read is None or read.role != "assistant")
        for block in read.blocks if read else ():
            if block.type == "tool_call":
                missing.discard(block.call_id or "")
            elif block.type == "tool_result" and is_end and block.call_id:
                missing.add(block.call_id)
        if not missing and not is_end:
            return
    if missing:
        raise BadInputError(
            f"messages holds the result of the call {min(missing)}, but not the reply with this call. Pass the whole"
            " conversation each time, and append each reply of the model to it (in a Python program:"
            " messages += await session.reply(reply))."
        )


def _reading(fmt: Format, native: Native) -> Reading | None:
    try:
        return fmt.read(native)
    except BadMessageError:  # the recording reports it
        return None
