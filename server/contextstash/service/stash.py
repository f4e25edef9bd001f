"""The service: every use case as one method, in the tools' own words."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from contextstash.formats import get_format
from contextstash.service import compacting, pruning, retrieving, sending, sessions
from contextstash.service.access import Access, CurrentSession
from contextstash.service.estimating import estimate_messages, estimate_session
from contextstash.service.following import record_transcript
from contextstash.service.limiting import limit_outputs
from contextstash.service.managing import AutomaticCare
from contextstash.service.recording import RecentCalls, append, ensure_session, with_usage
from contextstash.service.results import (
    CompactResult,
    ConfigureResult,
    ContextResult,
    DeleteResult,
    Estimate,
    MessagePage,
    OutputPage,
    PruneResult,
    RecordResult,
    RestoreResult,
    SearchResult,
    SessionList,
    SummaryResult,
)
from contextstash.service.transcripts import TranscriptMessage, TranscriptSession
from contextstash_storage.errors import BadInputError
from contextstash_storage.records import Appended, Call, Cursor, Event, Native
from contextstash_storage.store import SessionStore


class Stash:
    """One owner's sessions. All methods raise ContextstashError and nothing else on purpose."""

    def __init__(
        self,
        store: SessionStore,
        *,
        owner: str = "local",
        settings: Mapping[str, Any] | None = None,
        current_session: CurrentSession | None = None,
    ) -> None:
        """`settings` is the server's layer; `current_session` is asked where a call names no session."""
        self._access = Access(store, owner=owner, settings=settings, current_session=current_session)
        self._recent = RecentCalls(self._access)
        self._care = AutomaticCare(self._access)
        self._recording: dict[str, asyncio.Lock] = {}

    async def close(self) -> None:
        """Close the store."""
        await self._access.store.close()

    async def estimate_context(
        self,
        session_id: str | None = None,
        *,
        messages: Sequence[Native] | None = None,
        model: str | None = None,
    ) -> Estimate:
        """How full the window is; with `messages`, of these alone, nothing recorded."""
        if messages is not None:
            return await asyncio.to_thread(estimate_messages, self._access, messages, model)
        return await estimate_session(self._access, await self._access.session(session_id), model)

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
        return await pruning.prune(
            self._access,
            session_id,
            keep_last=keep_last,
            protect_tokens=protect_tokens,
            minimum_tokens=minimum_tokens,
            dry_run=dry_run,
        )

    async def compact_session(
        self,
        session_id: str | None = None,
        *,
        summary: str | None = None,
        instructions: str | None = None,
        strategy: str = "auto",
        dry_run: bool = False,
    ) -> CompactResult:
        """Show all but the recent messages as a summary."""
        return await compacting.compact(
            self._access,
            session_id,
            summary=summary,
            instructions=instructions,
            strategy=strategy,
            dry_run=dry_run,
        )

    async def get_summary(self, session_id: str | None = None, *, level: str | None = None) -> SummaryResult:
        """The newest summary in force."""
        return await compacting.get_summary(self._access, session_id, level)

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
        return await retrieving.get_archived_output(
            self._access,
            handle,
            session_id=session_id,
            offset=offset,
            limit=limit,
            pattern=pattern,
            max_tokens=max_tokens,
        )

    async def search_history(
        self,
        query: str,
        *,
        session_id: str | None = None,
        limit: int | None = None,
        scope: str | None = None,
    ) -> SearchResult:
        """Find messages and outputs by their words."""
        return await retrieving.search_history(self._access, query, session_id=session_id, limit=limit, scope=scope)

    async def restore_outputs(self, handles: Sequence[str], *, session_id: str | None = None) -> RestoreResult:
        """Put archived outputs, or what a summary covers, back into the view."""
        return await pruning.restore(self._access, handles, session_id)

    async def record_messages(
        self,
        messages: Sequence[Native],
        *,
        session_id: str | None = None,
        format: str | None = None,
        model: str | None = None,
        agent: str | None = None,
        usage: Mapping[str, Any] | None = None,
        title: str | None = None,
        parent_session_id: str | None = None,
    ) -> RecordResult:
        """Store messages durably; a session that isn't there is made. Messages already there are not stored twice.

        `usage` is what the provider reported for the last reply among the messages.
        """
        if not messages:
            raise BadInputError("messages is empty: pass at least one message as its provider writes it.")
        if session_id is None:
            session_id = await self._access.current_session_id()
        session = await ensure_session(
            self._access,
            session_id,
            messages,
            format=format,
            model=model,
            agent=agent,
            title=title,
            parent_session_id=parent_session_id,
        )
        async with self._recording.setdefault(session.session_id, asyncio.Lock()):
            calls = await self._recent.of(session)
            extras = with_usage(messages, get_format(session.format or "openai-chat"), usage)
            appended = await append(self._access, session, messages, calls, extras=extras)
            self._recent.keep(appended.session, calls)
            session = await limit_outputs(self._access, appended)
        return await self._recorded(appended.model_copy(update={"session": session}))

    async def _recorded(self, appended: Appended) -> RecordResult:
        estimate, done = await self._care.after_recording(appended.session)
        return RecordResult(
            session_id=appended.session.session_id,
            recorded=len(appended.messages),
            duplicates=appended.duplicates,
            tokens=estimate.tokens,
            percent=estimate.percent,
            level=estimate.level,
            done=done,
        )

    async def record_transcript(
        self, session: TranscriptSession, messages: Sequence[TranscriptMessage], cursor: Cursor
    ) -> RecordResult:
        """Store what was read of a client's transcript, and how far it was read."""
        async with self._recording.setdefault(session.session_id, asyncio.Lock()):
            appended = await record_transcript(self._access, self._recent, session, messages, cursor)
        return await self._recorded(appended)

    async def read_cursor(self, source: str) -> Cursor | None:
        """How far a transcript file has been read."""
        return await self._access.store.get_cursor(self._access.owner, source)

    async def get_context(
        self,
        session_id: str | None = None,
        *,
        format: str | None = None,
        system: str | None = None,
        budget: int | None = None,
    ) -> ContextResult:
        """The messages to send next."""
        return await sending.get_context(self._access, session_id, format_name=format, system=system, budget=budget)

    async def list_sessions(self, *, limit: int = 50, cursor: str | None = None) -> SessionList:
        """Sessions, the last changed first."""
        return await sessions.list_sessions(self._access, limit, cursor)

    async def configure_session(self, session_id: str | None = None, *, settings: Mapping[str, Any]) -> ConfigureResult:
        """Change a session's own layer of settings; a value of None takes a setting back."""
        return await sessions.configure(self._access, session_id, settings)

    async def delete_session(self, session_id: str) -> DeleteResult:
        """Delete a session and everything in it, for good."""
        return await sessions.delete(self._access, session_id)

    async def read_messages(self, session_id: str, *, first: int = 0, limit: int = 50) -> MessagePage:
        """A page of the full history."""
        return await sessions.read_messages(self._access, session_id, first, limit)

    async def read_events(self, session_id: str, *, after: int = 0, limit: int = 100) -> list[Event]:
        """What happened to a session's context, oldest first."""
        return await self._access.store.read_events(self._access.owner, session_id, after=after, limit=limit)

    async def read_calls(self, session_id: str, *, after: int = 0, limit: int = 100) -> list[Call]:
        """The model calls of a session, oldest first."""
        return await self._access.store.read_calls(self._access.owner, session_id, after=after, limit=limit)

    async def complete_session_id(self, prefix: str) -> list[str]:
        """Session ids that begin so, at most 100."""
        return await self._access.store.find_session_ids(self._access.owner, prefix, 100)

    async def complete_handle(self, prefix: str) -> list[str]:
        """Handles that begin so, at most 100."""
        return await self._access.store.find_handles(self._access.owner, prefix, 100)
