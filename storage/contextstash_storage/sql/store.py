"""What both stores do in the same way: the operations of a SessionStore that are steps on rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from contextstash_storage.deleted_sessions import DeletedSession
from contextstash_storage.records import (
    CachedSummary,
    Call,
    Counters,
    Cursor,
    DaySum,
    Declared,
    DeclaredVersion,
    Event,
    EventKind,
    Output,
    ProxiedSession,
    Request,
    Session,
    SessionExtras,
    StoreMark,
    ToolSum,
    Totals,
    Usage,
)
from contextstash_storage.sql import edits, logs, outputs, requests, sessions
from contextstash_storage.sql.rows import check_changes, read_session
from contextstash_storage.sql.steps import Key, Result, Steps

Read = Callable[[Key], Steps[Result]]
"""Steps on the rows of a session."""

Change = Callable[[Key, Session], Steps[Result]]
"""Steps that change a session, given it as it is."""


class RowStore(ABC):
    """A SessionStore's operations on rows. Stores run their steps, and have the rest."""

    owner: str

    @abstractmethod
    async def _of_owner(self, read: Callable[[], Steps[Result]], *, together: bool = False) -> Result:
        """What steps that only read return: those of one statement, or several that see the same state."""

    @abstractmethod
    async def _of_session(self, session_id: str, read: Read[Result], *, together: bool = False) -> Result:
        """The same for a session. Raises SessionNotFoundError."""

    @abstractmethod
    async def _change(self, session_id: str, change: Change[Result], *, told: bool = True) -> Result:
        """What steps that change a session return; no other transaction changes it meanwhile. `told` is whether those
        who follow the changes of sessions are told of this one. Raises SessionNotFoundError."""

    @abstractmethod
    async def _write_steps(self, steps: Callable[[], Steps[Result]]) -> Result:
        """What steps that write return, as one transaction."""

    @abstractmethod
    def _store_counters(self, key: Key, session: Session, counters: Counters) -> Steps[Session]:
        """Store a session's counters and that it was changed now; returns the changed session."""

    @abstractmethod
    def _insert_call(self, key: Key, call: Call) -> Steps[None]:
        """Store a model call, with the current time if it has none."""

    @abstractmethod
    def _output_of(self, row: Sequence[Any]) -> Output:
        """The output of a row of the dialect's `output` columns."""

    @abstractmethod
    def _stored_name(self, name: Any) -> Any:
        """A name or title as the store can hold it."""

    def stored_change(self, key: Key, session: Session, counters: Counters, event: Event | None) -> Steps[Session]:
        """Store a session's counters, and an event with them; returns the changed session."""
        if event is not None:
            yield from logs.insert_event(key, event)
        return (yield from self._store_counters(key, session, counters))

    async def owners(self) -> list[str]:
        return await self._of_owner(sessions.owners)

    async def read_extras(self, session_id: str) -> SessionExtras:
        return await self._of_session(session_id, sessions.read_extras, together=True)

    async def put_extras(self, session_id: str, extras: SessionExtras) -> None:
        await self._change(session_id, lambda key, _: sessions.put_extras(self.owner, key, extras))

    async def list_sessions(
        self,
        *,
        limit: int = 50,
        before: str | None = None,
        parent: str | None = None,
        without_agent: str | None = None,
        by_message: bool = False,
    ) -> list[Session]:
        return await self._of_owner(
            lambda: sessions.sessions_of(self.owner, limit, before, parent, without_agent, by_message), together=True
        )

    async def totals(self, *, without_agent: str = "") -> Totals:
        return await self._of_owner(lambda: sessions.totals(self.owner, without_agent), together=True)

    async def mark(self) -> StoreMark:
        return await self._of_owner(lambda: sessions.mark(self.owner))

    async def session_tools(self, session_id: str) -> list[ToolSum]:
        return await self._of_session(session_id, sessions.session_tools)

    async def session_days(self, session_id: str) -> list[DaySum]:
        return await self._of_session(session_id, sessions.session_days)

    async def find_session_ids(self, prefix: str, limit: int, *, without_agent: str | None = None) -> list[str]:
        return await self._of_owner(lambda: sessions.find_ids(self.owner, prefix, limit, without_agent or ""))

    async def update_session(self, session_id: str, **changes: Any) -> Session:
        check_changes(changes)

        def change(key: Key, _: Session) -> Steps[Session]:
            yield from sessions.update_fields(key, changes, self._stored_name)
            return (yield from read_session(self.owner, session_id))[1]

        return await self._change(session_id, change)

    async def get_cursor(self, source: str) -> Cursor | None:
        return await self._of_owner(lambda: sessions.read_cursor(self.owner, source))

    async def change_counters(
        self, session_id: str, change: Callable[[Counters], Counters], *, event: Event | None = None
    ) -> Session:
        return await self._change(
            session_id, lambda key, session: self.stored_change(key, session, change(session.counters), event)
        )

    async def find_output(self, handle: str, session_id: str | None = None) -> tuple[str, Output]:
        return await self._of_owner(
            lambda: outputs.find_output(self.owner, handle, session_id, self._output_of), together=True
        )

    async def find_summary(self, summary_id: str, session_id: str | None = None) -> str | None:
        return await self._of_owner(lambda: edits.find_summary(self.owner, summary_id, session_id))

    async def find_handles(self, prefix: str, limit: int) -> list[str]:
        return await self._of_owner(lambda: outputs.find_handles(self.owner, prefix, limit))

    async def append_event(self, session_id: str, event: Event, level: str | None = None) -> None:
        def change(key: Key, session: Session) -> Steps[None]:
            yield from logs.insert_event(key, event)
            if level is not None:
                yield from sessions.put_level(key, session.counters, level)

        await self._change(session_id, change)

    async def read_events(self, session_id: str, *, after: int = 0, limit: int = 100) -> list[Event]:
        return await self._of_session(session_id, lambda key: logs.read_events(key, after, limit))

    async def last_events(self, session_id: str, kinds: Sequence[EventKind], limit: int) -> list[Event]:
        return await self._of_session(session_id, lambda key: logs.last_events(key, kinds, limit))

    async def append_call(self, session_id: str, call: Call) -> None:
        await self._change(session_id, lambda key, _: self._insert_call(key, call))

    async def last_calls(self, session_id: str, limit: int) -> list[Call]:
        return await self._of_session(session_id, lambda key: logs.last_calls(key, limit))

    async def read_calls(self, session_id: str, *, after: int = 0, limit: int = 100) -> list[Call]:
        return await self._of_session(session_id, lambda key: logs.read_calls(key, after, limit))

    async def declare(
        self, session_id: str, parts: Sequence[DeclaredVersion], change: Callable[[Declared, Sequence[int]], Declared]
    ) -> Session:
        def steps(key: Key, session: Session) -> Steps[Session]:
            counters = yield from requests.declare(key, session.counters, parts, change)
            return (yield from self.stored_change(key, session, counters, None))

        return await self._change(session_id, steps)

    async def read_declared(self, session_id: str, versions: Sequence[int] | None = None) -> list[DeclaredVersion]:
        return await self._of_session(session_id, lambda key: requests.read_declared(key, versions))

    async def append_request(self, session_id: str, request: Request) -> Request:
        def change(key: Key, session: Session) -> Steps[Request]:
            placed, counters = yield from requests.insert_request(key, session.counters, request)
            yield from self.stored_change(key, session, counters, None)
            return placed

        return await self._change(session_id, change)

    async def read_requests(self, session_id: str, *, last: int = 1) -> list[Request]:
        return await self._of_session(session_id, lambda key: requests.read_requests(key, last))

    async def list_requests(self, session_id: str, *, after: int = 0, limit: int = 100) -> list[Request]:
        return await self._of_session(session_id, lambda key: requests.list_requests(key, after, limit))

    async def get_request(self, session_id: str, number: int) -> Request | None:
        return await self._of_session(session_id, lambda key: requests.read_request(key, number))

    async def book_usage(
        self, session_id: str, number: int, usage: Usage, change: Callable[[Counters], Counters], call: Call
    ) -> Session:
        def steps(key: Key, session: Session) -> Steps[Session]:
            yield from requests.book_usage(key, number, usage)
            yield from self._insert_call(key, call)
            return (yield from self.stored_change(key, session, change(session.counters), None))

        return await self._change(session_id, steps)

    async def get_cached_summary(self, session_id: str, key: str) -> CachedSummary | None:
        return await self._of_session(session_id, lambda session: logs.read_cached_summary(session, key))

    async def put_cached_summary(self, session_id: str, key: str, summary: CachedSummary) -> None:
        await self._change(session_id, lambda session, _: logs.keep_summary(session, key, summary), told=False)

    async def get_proxied(self, session_id: str) -> ProxiedSession | None:
        return await self._of_session(session_id, requests.read_proxied)

    async def put_proxied(self, session_id: str, proxied: ProxiedSession) -> None:
        await self._change(session_id, lambda key, _: requests.keep_proxied(key, proxied), told=False)

    async def recent_proxied(self, since: float, limit: int) -> list[tuple[str, ProxiedSession]]:
        return await self._of_owner(lambda: requests.recent_proxied(self.owner, since, limit))

    async def deleted_sessions(self) -> list[DeletedSession]:
        return await self._of_owner(lambda: requests.deleted_sessions(self.owner))

    async def note_responses(self, session_id: str, marks: Sequence[str], responses: Sequence[str]) -> None:
        await self._write_steps(lambda: requests.note_responses(self.owner, session_id, marks, responses))
