"""The service: every use case as one method, in the tools' own words."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any

from contextstash.context.view.prune_plan import PruneOptions
from contextstash.formats import get_format
from contextstash.service.estimate import estimate_messages
from contextstash.service.limited_output import LimitedOutput
from contextstash.service.queries import conversation, retrieval, sessions, transfer
from contextstash.service.queries.diagnosis import estimate_with_notes
from contextstash.service.queries.overview import overview, session_use
from contextstash.service.queries.side_by_side import read_beside
from contextstash.service.queries.status import context_status
from contextstash.service.queries.timeline import timeline
from contextstash.service.queries.window_advice import advise
from contextstash.service.recording import output_archive, output_limits, single_output
from contextstash.service.recording.batches import (
    REPEATED,
    BatchIdentity,
    check_batch,
    check_next_request,
    record_batch,
)
from contextstash.service.recording.messages import RecentCalls, ensure_session, with_usage
from contextstash.service.recording.open_session import open_session
from contextstash.service.recording.session_locks import SessionLocks
from contextstash.service.recording.transcript_records import TranscriptMessage, TranscriptSession
from contextstash.service.recording.transcripts import record_transcript
from contextstash.service.reduction import compact, prune, restore
from contextstash.service.reduction import summaries as kept_summaries
from contextstash.service.reduction.automatic import AutoReducer
from contextstash.service.reduction.pins import PinChange, configure
from contextstash.service.reduction.write_summary import Writers
from contextstash.service.requests import call_log, get_context, handoff, overflow_recovery
from contextstash.service.requests import sampling as sampled_summaries
from contextstash.service.requests.declared_parts import System, Tools, check_declared, declare
from contextstash.service.requests.late_usage import book_late
from contextstash.service.requests.proxied import ProxiedSessions, with_effect
from contextstash.service.results import (
    BesidePage,
    CallList,
    CompactResult,
    ConfigureResult,
    ContextResult,
    ContextStatus,
    CopyResult,
    DeleteResult,
    Estimate,
    MessagePage,
    OutputCall,
    OutputPage,
    Overview,
    PruneResult,
    RecordResult,
    RecoverResult,
    RestoreResult,
    SearchResult,
    SessionLine,
    SessionList,
    SessionUse,
    SummaryResult,
    Timeline,
    WindowAdvice,
)
from contextstash.service.session_access import Access, Consent, CurrentSession, HostWindow, ProjectOf, SettingsFor
from contextstash.summarizers.sampling import SamplingRequest
from contextstash_storage.errors import BadInputError
from contextstash_storage.records import (
    Appended,
    Call,
    Cursor,
    DeclaredVersion,
    Event,
    Native,
    Request,
    Session,
)
from contextstash_storage.store import SessionStore
from contextstash_storage.tokens import TokenStore


class Stash:
    """One owner's sessions. All methods raise ContextstashError and nothing else on purpose."""

    def __init__(
        self,
        store: SessionStore,
        *,
        settings: Mapping[str, Any] | SettingsFor | None = None,
        api_key: str | None = None,
        consent: Consent | None = None,
        current_session: CurrentSession | None = None,
        host_windows: Mapping[str, HostWindow] | None = None,
        project_of: ProjectOf | None = None,
    ) -> None:
        """`settings` is the server's layer, or a function that returns it for an agent's name; `api_key` is for the
        model that writes summaries; `consent` returns, for an agent's name, whether the user lets a model be called
        (without it, passing a key is consent, and so is a consenting setting); `current_session` is called if a call
        names no session.
        `host_windows` are those of hosts that do not use their model's whole window, by the agent's name; `project_of`
        returns the folder that a client ran in, given its transcript."""
        self._options: dict[str, Any] = {
            "settings": settings,
            "api_key": api_key,
            "consent": consent,
            "host_windows": host_windows,
            "project_of": project_of,
        }
        self._access = Access(store, current_session=current_session, **self._options)
        self._recent = RecentCalls(self._access)
        self._reducer = AutoReducer(self._access)
        self._recording = SessionLocks()

    @property
    def proxied(self) -> ProxiedSessions:
        """The sessions whose requests go through the proxy."""
        return ProxiedSessions(self._access, self._recent, self._recording)

    @property
    def owner(self) -> str:
        """Whose sessions these are."""
        return self._access.store.owner

    @property
    def tokens(self) -> TokenStore:
        """The tokens of a server's clients, of all owners."""
        return self._access.store.tokens

    def for_owner(self, owner: str) -> Stash:
        """The sessions of another owner in the same open database, which follows no client. End it with `end`."""
        return Stash(self._access.store.for_owner(owner), **self._options)

    async def end(self) -> None:
        """End the reductions in the background; the store stays open."""
        await self._reducer.close()
        self._access.searches.close()

    async def close(self) -> None:
        """End the reductions in the background, and close the store."""
        await self.end()
        await self._access.store.close()

    async def idle(self) -> None:
        """Wait until no reduction is running in the background."""
        await self._reducer.idle()

    async def estimate_context(
        self,
        session_id: str | None = None,
        *,
        messages: Sequence[Native] | None = None,
        model: str | None = None,
    ) -> Estimate:
        """How full the window is; with `messages`, the estimate for these alone, and nothing is recorded."""
        if messages is not None:
            return await asyncio.to_thread(estimate_messages, self._access, messages, model)
        return await estimate_with_notes(self._access, await self._access.session(session_id), model)

    async def context_status(self, session_id: str | None = None) -> ContextStatus:
        """The status of a session's context for a person."""
        return await context_status(self._access, session_id)

    async def timeline(self, session_id: str, *, points: int = 200) -> Timeline:
        """The content of a session's window over time, at about `points` places, and what changed it."""
        return await timeline(self._access, session_id, points)

    async def overview(self) -> Overview:
        """All sessions together: what was saved, the busiest sessions, and the use by tool and day."""
        return await overview(self._access)

    async def advise(self, sessions: Sequence[Session]) -> WindowAdvice:
        """What the recorded requests of these sessions would have cost in smaller windows."""
        return await advise(self._access, sessions)

    async def mark(self) -> str:
        """A text that is another one after any change of any session; quickly read."""
        found = await self._access.store.mark()
        return f"{found.sessions}-{found.changed_at.isoformat() if found.changed_at else ''}"

    async def session_use(self, session_id: str) -> SessionUse:
        """What a session's tool outputs and model calls took."""
        return await session_use(self._access, session_id)

    async def read_beside(self, session_id: str, *, first: int = 0, limit: int = 100) -> BesidePage:
        """A page of the history with what the model sees in the place of each message."""
        return await read_beside(self._access, session_id, first, limit)

    def export_session(self, session_id: str) -> AsyncIterator[dict[str, Any]]:
        """A whole session as records, one after another."""
        return transfer.export_session(self._access, session_id)

    async def import_session(self, lines: Iterable[str], *, session_id: str | None = None) -> CopyResult:
        """Store a session from exported records, as JSON lines, exactly as it was."""
        return await transfer.import_session(self._access, lines, session_id)

    async def prune_tool_outputs(
        self,
        session_id: str | None = None,
        *,
        keep_last: int | None = None,
        protect_tokens: int | None = None,
        minimum_tokens: int | None = None,
        dry_run: bool = False,
    ) -> PruneResult:
        """Move old tool outputs from the view to the archive."""
        options = PruneOptions(keep_last, protect_tokens, minimum_tokens, dry_run)
        return await with_effect(self._access, await prune.prune(self._access, session_id, options), time.time())

    async def compact_session(
        self,
        session_id: str | None = None,
        *,
        summary: str | None = None,
        instructions: str | None = None,
        strategy: str = "auto",
        sampled: str | None = None,
        dry_run: bool = False,
    ) -> CompactResult:
        """Replace all but the recent messages with a summary: the host's `summary`, or one written by `strategy`.
        `sampled` is the reply of the client's model to `sampling_request`."""
        writers = Writers(strategy, summary, sampled, instructions)
        result = await compact.compact(self._access, session_id, writers, dry_run=dry_run)
        return await with_effect(self._access, result, time.time())

    async def sampling_request(
        self, session_id: str | None = None, *, instructions: str | None = None, strategy: str = "sampling"
    ) -> SamplingRequest | None:
        """The request for a summary by the client's model; None if there is nothing to compact, or if `strategy` tries
        another summarizer first."""
        return await sampled_summaries.sampling_request(self._access, session_id, instructions, strategy)

    async def recover_context(
        self,
        session_id: str | None = None,
        *,
        error: str | Mapping[str, Any],
        system: System | None = None,
        tools: Tools | None = None,
    ) -> RecoverResult:
        """What to send after the provider refused a request as too long for its window."""
        check_declared(system, tools)
        if system is not None or tools is not None:
            await declare(self._access, await self._access.session(session_id), system=system, tools=tools)
        return await overflow_recovery.recover_context(self._access, session_id, error)

    async def limit_output(
        self,
        text: str,
        *,
        tool: str = "clip",
        argument: str = "",
        session_id: str | None = None,
        limits: Mapping[str, Any] | None = None,
        keep_whole: bool = True,
    ) -> LimitedOutput:
        """One output within limits; if it is cut, the whole is archived first and named by its handle."""
        return await single_output.limit_text(
            self._access,
            text,
            tool=tool,
            argument=argument,
            session_id=session_id,
            limits=limits,
            keep_whole=keep_whole,
        )

    async def keep_output(self, text: str, *, tool: str, argument: str = "", session_id: str | None = None) -> str:
        """Archive an output durably and return its handle."""
        return await output_archive.keep_output(self._access, text, tool=tool, argument=argument, session_id=session_id)

    async def get_summary(self, session_id: str | None = None, *, level: str | None = None) -> SummaryResult:
        """All summaries in the view, or the newest one of a level, or one by its id."""
        return await kept_summaries.get_summary(self._access, session_id, level)

    async def hand_off(
        self, session_id: str, *, max_tokens: int = 2_500, to: str | None = None, resumed: bool = False
    ) -> str | None:
        """What a new window needs to know of a session, with handles; None if there is nothing to hand off, or if the
        window has had it. `to` is the session whose window it is, if it is another one."""
        return await handoff.hand_off_once(self._access, session_id, max_tokens, to, resumed)

    async def get_archived_output(
        self,
        handle: str,
        *,
        session_id: str | None = None,
        offset: int | None = None,
        limit: int | None = None,
        pattern: str | None = None,
        max_tokens: int | None = None,
    ) -> OutputPage:
        """A page of an original tool output."""
        return await retrieval.get_archived_output(
            self._access,
            handle,
            session_id=session_id,
            offset=offset,
            limit=limit,
            pattern=pattern,
            max_tokens=max_tokens,
        )

    async def read_call(self, handle: str, *, session_id: str | None = None) -> OutputCall | None:
        """The call that an archived output answers, None if it is not known."""
        return await retrieval.read_call(self._access, handle, session_id)

    async def search_history(
        self,
        query: str,
        *,
        session_id: str | None = None,
        limit: int | None = None,
        scope: str | None = None,
        tool: str | None = None,
        since: str | None = None,
        until: str | None = None,
        project: str | None = None,
        unseen_first: bool = True,
        line_breaks: bool = False,
    ) -> SearchResult:
        """Search messages and outputs by words; with the scope `project`, in the sessions of clients that ran in this
        folder, by default in the session's. With `unseen_first`, as an agent wants it, what the view shows counts
        less; with `line_breaks`, as a person reads them, snippets have the lines of the text."""
        return await retrieval.search_history(
            self._access,
            query,
            session_id=session_id,
            limit=limit,
            scope=scope,
            tool=tool,
            since=since,
            until=until,
            project=project,
            unseen_first=unseen_first,
            line_breaks=line_breaks,
        )

    async def restore_outputs(self, handles: Sequence[str], *, session_id: str | None = None) -> RestoreResult:
        """Put archived outputs, or what a summary covers, back into the view."""
        result = await restore.restore(self._access, handles, session_id)
        return await with_effect(self._access, result, time.time())

    async def restore_last(self, session_id: str) -> RestoreResult:
        """Undo the last prune or compaction as a whole."""
        result = await restore.restore_last(self._access, session_id)
        return await with_effect(self._access, result, time.time())

    async def open_session(
        self,
        session_id: str,
        *,
        default_format: Callable[[], str],
        settings: Mapping[str, Any] | None = None,
        **facts: str | None,
    ) -> Session:
        """A session before its first message, created if it does not exist, with these settings of its own. `facts`
        are format, model, agent, title and parent_session_id; without a format, `default_format` finds it."""
        return await open_session(self._access, session_id, default_format, settings or {}, facts)

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
    ) -> RecordResult:
        """Store messages durably; a session that does not exist is created.

        Messages sent again are recognized by one of three arguments, never by equal text: `first_seq`, the position of
        the first message (`next_seq` of the previous result); `batch_id`, an id of this batch; `whole`, the list is
        the whole conversation, and messages that are no longer in it leave the view. Without these, all are appended.

        `usage` is the usage that the provider reported for the last reply among the messages; it is booked to the
        request `request_id`, by default the newest one that get_context returned. `system` and `tools` are sent beside
        the messages and counted with them, until others are declared. `limits` override the session's limits of a
        single output for these messages.
        """
        output_limits.check_limits(limits)
        check_declared(system, tools)
        if not messages:
            raise BadInputError("messages is empty: pass at least one message as its provider writes it.")
        identity = BatchIdentity(first_seq, batch_id, whole)
        if session_id is None:
            session_id = await self._access.current_session_id()
        known = await check_batch(self._access, session_id, messages, identity, format, usage)
        named = {"model": model, "agent": agent, "title": title, "parent_session_id": parent_session_id}
        beside: dict[str, Any] = {"system": system, "tools": tools}
        session = await ensure_session(
            self._access, session_id, messages, known=known, format=format, **beside, **named
        )
        async with self._recording.of(session.session_id):
            extras = await self._extras(session, messages, usage, request_id)
            recent = await self._recent.of(session)
            appended = await record_batch(self._access, session, messages, recent, identity, extras)
            self._recent.keep(appended.session, recent)
            session = await self._declared_and_limited(appended, system, tools, limits, usage)
        return await self._recorded(appended.model_copy(update={"session": session}))

    async def _declared_and_limited(
        self,
        appended: Appended,
        system: System | None,
        tools: Tools | None,
        limits: Mapping[str, Any] | None,
        usage: Mapping[str, Any] | None,
    ) -> Session:
        """The session after what comes with its new messages: declared parts, limits of outputs, a late usage."""
        declared = await declare(self._access, appended.session, system=system, tools=tools)
        appended = appended.model_copy(update={"session": declared})
        session = await output_limits.limit_outputs(self._access, appended, limits)
        if usage is not None and not any(message.usage for message in appended.messages):
            return await book_late(self._access, session, usage)
        return session

    async def _extras(
        self, session: Session, messages: Sequence[Native], usage: Mapping[str, Any] | None, request_id: str | None
    ) -> list[dict[str, Any]]:
        """What is stored beside each message: the usage on that which it was reported for, and its request."""
        extras = with_usage(messages, get_format(session.format), usage)
        if usage is None or request_id is None:
            return extras
        request = await get_context.find_request(self._access, session.session_id, request_id)
        return [{**extra, "request": request.sent} if extra else extra for extra in extras]

    async def _recorded(self, appended: Appended, *, reduce: bool = True) -> RecordResult:
        written_at = appended.messages[-1].created_at if appended.messages else None
        estimate, done = await self._reducer.after_recording(appended.session, written_at, reduce=reduce)
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

    async def record_transcript(
        self, session: TranscriptSession, messages: Sequence[TranscriptMessage], cursor: Cursor, *, reduce: bool = True
    ) -> RecordResult:
        """Store the messages read from a client's transcript, and the position up to which it was read. Without
        `reduce` nothing is pruned or compacted automatically."""
        async with self._recording.of(session.session_id):
            appended = await record_transcript(self._access, self._recent, session, messages, cursor)
        return await self._recorded(appended, reduce=reduce)

    async def read_cursor(self, source: str) -> Cursor | None:
        """The position up to which a transcript file has been read."""
        return await self._access.store.get_cursor(source)

    async def get_context(
        self,
        session_id: str | None = None,
        *,
        messages: Sequence[Native] | None = None,
        system: System | None = None,
        tools: Tools | None = None,
        usage: Mapping[str, Any] | None = None,
        request_id: str | None = None,
        budget: int | None = None,
        format: str | None = None,
        model: str | None = None,
        agent: str | None = None,
        limits: Mapping[str, Any] | None = None,
    ) -> ContextResult:
        """The messages to send next, recorded as a request; one that had to be shrunk records the edits.

        `messages`, if given, is the whole conversation, and is recorded first; the other arguments are those of
        `record_messages`. `budget` is in tokens, by default the usable window; system prompt and tools count.
        """
        recorded: RecordResult | None = None
        if messages is not None:
            if messages:
                await check_next_request(self._access, session_id, messages, format)
            recorded = await self.record_messages(
                messages,
                session_id=session_id,
                whole=True,
                format=format,
                model=model,
                agent=agent,
                usage=usage,
                request_id=request_id,
                system=system,
                tools=tools,
                limits=limits,
            )
            session_id = recorded.session_id
        elif system is not None or tools is not None or usage is not None:
            check_declared(system, tools)
            session = await declare(self._access, await self._access.session(session_id), system=system, tools=tools)
            if usage is not None:
                await book_late(self._access, session, usage, request_id)
        result = await get_context.get_context(self._access, session_id, format_name=format, budget=budget)
        if recorded is None:
            return result
        done = [*recorded.done, *(result.done or ())]
        return result.model_copy(update={"done": done or None, "next_seq": recorded.next_seq})

    async def read_context(self, session_id: str | None = None, *, budget: int | None = None) -> ContextResult:
        """The messages that a request would hold now; nothing is recorded."""
        return await get_context.read_context(self._access, session_id, budget=budget)

    async def read_declared(self, session_id: str) -> list[DeclaredVersion]:
        """Every version of the system prompt and of the tool definitions that was declared, oldest first."""
        return await self._access.store.read_declared(session_id)

    async def read_requests(self, session_id: str, *, last: int = 10) -> list[Request]:
        """The newest requests of a session, newest first."""
        return await self._access.store.read_requests(session_id, last=last)

    async def recent_sessions(self, *, limit: int = 50, cursor: str | None = None) -> list[Session]:
        """The records of sessions, the one with the newest message first, without those that only archive outputs."""
        return await sessions.recent_sessions(self._access, limit, cursor)

    async def list_sessions(self, *, limit: int = 50, cursor: str | None = None) -> SessionList:
        """Sessions, the one with the newest message first."""
        return await sessions.list_sessions(self._access, limit, cursor)

    async def configure_session(
        self,
        session_id: str | None = None,
        *,
        settings: Mapping[str, Any] | None = None,
        pin: Sequence[str] = (),
        unpin: Sequence[str] = (),
    ) -> ConfigureResult:
        """Change a session's own layer of settings; a value of None removes the setting from it. `pin` and `unpin` add
        handles of outputs or paths of files to its pins, and remove them. What is pinned and archived is restored."""
        return await configure(self._access, session_id, settings or {}, PinChange(tuple(pin), tuple(unpin)))

    async def delete_session(self, session_id: str) -> DeleteResult:
        """Delete a session and everything in it permanently."""
        return await sessions.delete(self._access, session_id)

    async def read_session(self, session_id: str) -> Session:
        """A session's record: agent, model, settings of its own. Raises SessionNotFoundError."""
        return await self._access.session(session_id)

    async def read_conversation(self, session_id: str) -> list[Native]:
        """Every message that no rewind hides, as it was recorded: what a program continues from after a restart."""
        return await conversation.read_conversation(self._access, session_id)

    async def read_messages(self, session_id: str, *, first: int = 0, limit: int = 50) -> MessagePage:
        """A page of the full history."""
        return await sessions.read_messages(self._access, session_id, first, limit)

    async def read_events(self, session_id: str, *, after: int = 0, limit: int = 100) -> list[Event]:
        """What happened to a session's context, oldest first."""
        return await self._access.store.read_events(session_id, after=after, limit=limit)

    async def read_calls(self, session_id: str, *, after: int = 0, limit: int = 100) -> list[Call]:
        """The model calls of a session, oldest first."""
        return await self._access.store.read_calls(session_id, after=after, limit=limit)

    async def list_calls(self, session_id: str, *, after: int = 0, limit: int = 100) -> CallList:
        """The model calls of a session with the size and growth of their requests, oldest first."""
        return await call_log.list_calls(self._access, session_id, after, limit)

    async def read_request(self, session_id: str, call_id: int) -> list[Native]:
        """The messages of a call's request."""
        return await call_log.read_request(self._access, session_id, call_id)

    async def session_line(self, session_id: str) -> SessionLine:
        """A session as list_sessions lists it."""
        return await self.line_of(await self._access.session(session_id))

    async def line_of(self, session: Session) -> SessionLine:
        """A session that was read before, as list_sessions lists it."""
        return await sessions.session_line(self._access, session)

    async def projects_of(self, read: Sequence[Session]) -> list[str | None]:
        """The folder that the client of each session ran in; None if it is not known."""
        return await asyncio.to_thread(lambda: [self._access.project_of(session.source) for session in read])

    async def complete_session_id(self, prefix: str) -> list[str]:
        """Session ids with this prefix, at most 100; without the sessions that only archive outputs."""
        return await self._access.store.find_session_ids(prefix, 100, without_agent=output_archive.OUTPUTS_AGENT)

    async def complete_handle(self, prefix: str) -> list[str]:
        """Handles with this prefix, at most 100."""
        return await self._access.store.find_handles(prefix, 100)
