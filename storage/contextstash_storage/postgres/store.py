"""The session store in PostgreSQL: any number of processes on any number of machines."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, TypeVar

from contextstash_storage.codec import bodies
from contextstash_storage.codec.message_batch import Batch
from contextstash_storage.codec.preparation import PLAIN_FORM, is_large, prepare
from contextstash_storage.errors import SessionNotFoundError
from contextstash_storage.postgres import (
    activity,
    append_messages,
    changes,
    full_text_search,
    leases,
    logs,
    messages,
    requests,
    session_copy,
    session_extras,
    session_news,
    sessions,
    view_edits,
)
from contextstash_storage.postgres.address import Address
from contextstash_storage.postgres.connection import RETRY_SECONDS, Connection, Database, connect
from contextstash_storage.postgres.migrations import migrate
from contextstash_storage.postgres.session_key import Key
from contextstash_storage.postgres.sessions import changed, lock_session, read_session
from contextstash_storage.postgres.tokens import PostgresTokens
from contextstash_storage.records import (
    LOCAL_OWNER,
    Appended,
    CachedSummary,
    Call,
    Copied,
    Counters,
    Cursor,
    Declared,
    DeclaredVersion,
    Edit,
    Event,
    EventKind,
    Message,
    Native,
    NewMessage,
    Output,
    ProxiedSession,
    Request,
    SearchHit,
    Session,
    TokenSum,
    Usage,
)
from contextstash_storage.search.query import SearchFilter
from contextstash_storage.session_extras import SessionExtras
from contextstash_storage.session_news import KnownPart, SessionNews
from contextstash_storage.sqlite.rows import check_changes
from contextstash_storage.sqlite.view_edits import number_edits
from contextstash_storage.store import Count, EditsAfter, EditsBefore, Weigh
from contextstash_storage.totals import DaySum, StoreMark, ToolSum, Totals

MAX_INTEGER = 2**63 - 1

Result = TypeVar("Result")


async def open_postgres(
    address: Address, *, owner: str = LOCAL_OWNER, busy_seconds: float = RETRY_SECONDS
) -> PostgresStore:
    """Open the database at an address; its tables are made if they do not exist. The store is bound to the sessions of
    `owner`. A transaction that failed for a reason that passes is tried again for `busy_seconds`.

    Raises StoreVersionError for a database of a newer contextstash, StoreError for one that cannot be used.
    """
    database = await connect(address, busy_seconds)
    try:
        await database.write(lambda db: migrate(db, address.partitions))
    except BaseException:
        await database.close()
        raise
    return PostgresStore(database, owner)


class PostgresStore:
    """A SessionStore in PostgreSQL, bound to one owner."""

    def __init__(self, database: Database, owner: str = LOCAL_OWNER) -> None:
        self.owner = owner
        self._database = database
        self._process = leases.ProcessLock(database.address)
        self._announcer = changes.Announcer(database)
        self.tokens = PostgresTokens(database)

    def for_owner(self, owner: str) -> PostgresStore:
        """The same open database, bound to another owner. Closing either closes both."""
        other = copy.copy(self)
        other.owner = owner
        return other

    async def close(self) -> None:
        """Close the connections, after what runs on them; closing again does nothing."""
        await self._announcer.close()
        await self._process.close()
        await self._database.close()

    async def owners(self) -> list[str]:
        return await self._database.read_one(sessions.owners)

    async def read_extras(self, session_id: str) -> SessionExtras:
        return await self._together(session_id, session_extras.read)

    async def put_extras(self, session_id: str, extras: SessionExtras) -> None:
        await self._change(session_id, lambda db, key, _: session_extras.put(db, key, extras))

    def changed_sessions(self) -> AsyncIterator[str | None]:
        """The ids of sessions as they change, by any process on any machine; None first, and whenever some may have
        been missed."""
        return changes.changed_sessions(self._database, self.owner)

    async def create_session(self, session: Session) -> Session:
        owned = session.model_copy(update={"owner": self.owner})

        async def work(db: Connection) -> Session:
            await sessions.insert_session(db, owned)
            return await read_session(db, self._key(session.session_id))

        return await self._write(session.session_id, work)

    async def copy_session(self, session: Session, items: Iterable[Copied]) -> Session | None:
        owned = session.model_copy(update={"owner": self.owner})
        stored = await self._database.write_once(lambda db: session_copy.copy_session(db, owned, items))
        if stored is not None:
            self._announcer.tell(self.owner, session.session_id)
        return stored

    async def get_session(self, session_id: str) -> Session:
        return await self._database.read_one(lambda db: read_session(db, self._key(session_id)))

    async def list_sessions(
        self,
        *,
        limit: int = 50,
        before: str | None = None,
        parent: str | None = None,
        without_agent: str | None = None,
        by_message: bool = False,
    ) -> list[Session]:
        return await self._database.read(
            lambda db: activity.sessions_of(db, self.owner, limit, before, parent, without_agent, by_message)
        )

    async def totals(self, *, without_agent: str = "") -> Totals:
        return await self._database.read(lambda db: activity.totals(db, self.owner, without_agent))

    async def mark(self) -> StoreMark:
        return await self._database.read_one(lambda db: activity.mark(db, self.owner))

    async def session_tools(self, session_id: str) -> list[ToolSum]:
        return await self._of_session(session_id, activity.session_tools)

    async def session_days(self, session_id: str) -> list[DaySum]:
        return await self._of_session(session_id, activity.session_days)

    async def find_session_ids(self, prefix: str, limit: int, *, without_agent: str | None = None) -> list[str]:
        return await self._database.read_one(
            lambda db: sessions.find_ids(db, self.owner, prefix, limit, without_agent or "")
        )

    async def update_session(self, session_id: str, **changes: Any) -> Session:
        check_changes(changes)
        return await self._write(session_id, lambda db: sessions.update_session(db, self._key(session_id), changes))

    async def delete_session(self, session_id: str, *, along: Sequence[str] = ()) -> bool:
        async def work(db: Connection) -> None:
            await sessions.delete_session(db, self._key(session_id))
            for other in along:
                with suppress(SessionNotFoundError):
                    await sessions.delete_session(db, self._key(other))

        await self._write(session_id, work)
        return True

    async def append_messages(
        self,
        session_id: str,
        messages: Sequence[NewMessage],
        *,
        count: Count,
        first_seq: int | None = None,
        batch_id: str | None = None,
        before: EditsBefore | None = None,
        cursor: Cursor | None = None,
        edits: EditsAfter | None = None,
    ) -> Appended:
        large = is_large(messages)
        prepared = await asyncio.to_thread(prepare, messages, PLAIN_FORM) if large else prepare(messages, PLAIN_FORM)
        batch = Batch(self.owner, session_id, prepared, count, first_seq, batch_id, before, cursor, edits)
        return await self._write(session_id, lambda db: append_messages.append(db, batch))

    async def read_fingerprints(self, session_id: str, *, first: int = 0) -> list[bytes]:
        return await self._of_session(
            session_id, lambda db, key: append_messages.fingerprints(db, key, first, MAX_INTEGER)
        )

    def fingerprint(self, body: Native) -> bytes:
        return bodies.fingerprint(body)

    async def get_cursor(self, source: str) -> Cursor | None:
        return await self._database.read_one(lambda db: messages.read_cursor(db, self.owner, source))

    async def read_messages(
        self, session_id: str, *, first: int = 0, last: int | None = None, bodies: bool = True
    ) -> list[Message]:
        end = MAX_INTEGER if last is None else last
        read = self._of_session if not bodies or messages.are_few(end - first + 1) else self._together
        return await read(session_id, lambda db, key: messages.read_range(db, key, first, end, bodies=bodies))

    async def read_news(self, session_id: str, known: KnownPart) -> SessionNews:
        return await self._database.read(lambda db: session_news.read_news(db, self._key(session_id), known))

    async def read_messages_at(self, session_id: str, seqs: Sequence[int]) -> list[Message]:
        read = self._of_session if messages.are_few(len(seqs)) else self._together
        return await read(session_id, lambda db, key: messages.read_at(db, key, seqs))

    async def find_key(self, session_id: str, key: str) -> int | None:
        return await self._of_session(session_id, lambda db, session: messages.find_key(db, session, key))

    async def read_edits(self, session_id: str, *, after: int = 0) -> list[Edit]:
        return await self._of_session(session_id, lambda db, key: view_edits.read_edits(db, key, after))

    async def append_edits(
        self,
        session_id: str,
        edits: Sequence[Edit],
        *,
        expected: int,
        event: Event | None = None,
        own: bool = True,
    ) -> Session:
        numbered = await asyncio.to_thread(number_edits, edits, expected)

        async def work(db: Connection, key: Key, session: Session) -> Session:
            view_edits.check_expected(session.counters, expected)
            counters = await view_edits.insert_numbered(db, key, session.counters, numbered, own=own)
            return await changed(db, key, session, counters, event)

        return await self._change(session_id, work)

    async def change_counters(
        self, session_id: str, change: Callable[[Counters], Counters], *, event: Event | None = None
    ) -> Session:
        async def work(db: Connection, key: Key, session: Session) -> Session:
            return await changed(db, key, session, change(session.counters), event)

        return await self._change(session_id, work)

    async def read_outputs(self, session_id: str, *, first: int = 0, last: int | None = None) -> list[Output]:
        return await self._of_session(
            session_id, lambda db, key: messages.read_outputs(db, key, first, MAX_INTEGER if last is None else last)
        )

    async def find_output(self, handle: str, session_id: str | None = None) -> tuple[str, Output]:
        return await self._database.read_one(lambda db: messages.find_output(db, self.owner, handle, session_id))

    async def find_summary(self, summary_id: str, session_id: str | None = None) -> str | None:
        return await self._database.read_one(lambda db: view_edits.find_summary(db, self.owner, summary_id, session_id))

    async def find_handles(self, prefix: str, limit: int) -> list[str]:
        return await self._database.read_one(lambda db: messages.find_handles(db, self.owner, prefix, limit))

    async def search(
        self,
        query: str,
        *,
        session_ids: Sequence[str] | None = None,
        scope: str = "all",
        tool: str | None = None,
        after: datetime | None = None,
        before: datetime | None = None,
        limit: int = 10,
        weigh: Weigh | None = None,
    ) -> list[SearchHit]:
        where = SearchFilter(session_ids, scope, tool, after, before)
        return await self._database.read(lambda db: full_text_search.search(db, self.owner, query, where, limit, weigh))

    async def unindexed_messages(self) -> int:
        return 0

    async def append_event(self, session_id: str, event: Event, level: str | None = None) -> None:
        async def work(db: Connection, key: Key, session: Session) -> None:
            await logs.insert_event(db, key, event)
            if level is not None:
                await sessions.put_level(db, key, session, level)

        await self._change(session_id, work)

    async def read_events(self, session_id: str, *, after: int = 0, limit: int = 100) -> list[Event]:
        return await self._of_session(session_id, lambda db, key: logs.read_events(db, key, after, limit))

    async def last_events(self, session_id: str, kinds: Sequence[EventKind], limit: int) -> list[Event]:
        return await self._of_session(session_id, lambda db, key: logs.last_events(db, key, kinds, limit))

    async def token_sums(self, session_id: str, width: int) -> list[TokenSum]:
        return await self._of_session(session_id, lambda db, key: logs.token_sums(db, key, width))

    async def append_call(self, session_id: str, call: Call) -> None:
        await self._change(session_id, lambda db, key, _: logs.insert_call(db, key, call))

    async def last_calls(self, session_id: str, limit: int) -> list[Call]:
        return await self._of_session(session_id, lambda db, key: logs.last_calls(db, key, limit))

    async def read_calls(self, session_id: str, *, after: int = 0, limit: int = 100) -> list[Call]:
        return await self._of_session(session_id, lambda db, key: logs.read_calls(db, key, after, limit))

    async def declare(
        self, session_id: str, parts: Sequence[DeclaredVersion], change: Callable[[Declared, Sequence[int]], Declared]
    ) -> Session:
        async def work(db: Connection, key: Key, session: Session) -> Session:
            counters = await requests.declare(db, key, session.counters, parts, change)
            return await changed(db, key, session, counters, None)

        return await self._change(session_id, work)

    async def read_declared(self, session_id: str, versions: Sequence[int] | None = None) -> list[DeclaredVersion]:
        return await self._of_session(session_id, lambda db, key: requests.read_declared(db, key, versions))

    async def append_request(self, session_id: str, request: Request) -> Request:
        async def work(db: Connection, key: Key, session: Session) -> Request:
            placed, counters = await requests.insert_request(db, key, session.counters, request)
            await changed(db, key, session, counters, None)
            return placed

        return await self._change(session_id, work)

    async def read_requests(self, session_id: str, *, last: int = 1) -> list[Request]:
        return await self._of_session(session_id, lambda db, key: requests.read_requests(db, key, last))

    async def list_requests(self, session_id: str, *, after: int = 0, limit: int = 100) -> list[Request]:
        return await self._of_session(session_id, lambda db, key: requests.list_requests(db, key, after, limit))

    async def get_request(self, session_id: str, number: int) -> Request | None:
        return await self._of_session(session_id, lambda db, key: requests.read_request(db, key, number))

    async def book_usage(
        self, session_id: str, number: int, usage: Usage, change: Callable[[Counters], Counters], call: Call
    ) -> Session:
        async def work(db: Connection, key: Key, session: Session) -> Session:
            await requests.book_usage(db, key, number, usage)
            await logs.insert_call(db, key, call)
            return await changed(db, key, session, change(session.counters), None)

        return await self._change(session_id, work)

    async def acquire_lease(self, session_id: str, purpose: str, holder: str, seconds: float) -> bool:
        await self._process.take()
        number = self._process.number
        return await self._keep(
            session_id, lambda db, key, _: leases.acquire(db, key, purpose, holder, seconds, number)
        )

    async def release_lease(self, session_id: str, purpose: str, holder: str) -> None:
        await self._database.write(lambda db: leases.release(db, self._key(session_id), purpose, holder))

    async def get_cached_summary(self, session_id: str, key: str) -> CachedSummary | None:
        return await self._of_session(session_id, lambda db, session: logs.read_cached_summary(db, session, key))

    async def put_cached_summary(self, session_id: str, key: str, summary: CachedSummary) -> None:
        await self._keep(session_id, lambda db, session, _: logs.keep_summary(db, session, key, summary))

    async def get_proxied(self, session_id: str) -> ProxiedSession | None:
        return await self._of_session(session_id, requests.read_proxied)

    async def put_proxied(self, session_id: str, proxied: ProxiedSession) -> None:
        await self._keep(session_id, lambda db, key, _: requests.keep_proxied(db, key, proxied))

    async def recent_proxied(self, since: float, limit: int) -> list[tuple[str, ProxiedSession]]:
        return await self._database.read_one(lambda db: requests.recent_proxied(db, self.owner, since, limit))

    def _key(self, session_id: str) -> Key:
        return self.owner, session_id

    async def _of_session(self, session_id: str, work: Callable[[Connection, Key], Awaitable[Result]]) -> Result:
        """What `work`, which reads by one statement, returns for a session. Whether there is such a session is asked
        only if nothing was found: each question is a round trip."""
        key = self._key(session_id)
        found = await self._database.read_one(lambda db: work(db, key))
        if not found:
            await self._database.read_one(lambda db: sessions.check_session(db, key))
        return found

    async def _together(self, session_id: str, work: Callable[[Connection, Key], Awaitable[Result]]) -> Result:
        """The same for `work` that reads by several statements, of one state of the session."""
        key = self._key(session_id)

        async def checked(db: Connection) -> Result:
            await sessions.check_session(db, key)
            return await work(db, key)

        return await self._database.read(checked)

    async def _change(self, session_id: str, work: Callable[[Connection, Key, Session], Awaitable[Result]]) -> Result:
        """What `work`, which changes a session, returns; no other transaction changes it meanwhile."""
        result = await self._keep(session_id, work)
        self._announcer.tell(self.owner, session_id)
        return result

    async def _keep(self, session_id: str, work: Callable[[Connection, Key, Session], Awaitable[Result]]) -> Result:
        """The same for what nobody is told of."""
        key = self._key(session_id)

        async def locked(db: Connection) -> Result:
            return await work(db, key, await lock_session(db, key))

        return await self._database.write(locked)

    async def _write(self, session_id: str, work: Callable[[Connection], Awaitable[Result]]) -> Result:
        """What `work`, which changes a session, returns."""
        result = await self._database.write(work)
        self._announcer.tell(self.owner, session_id)
        return result
