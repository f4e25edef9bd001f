"""The session store in PostgreSQL: any number of processes on any number of machines."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar, Unpack

from contextstash_storage.errors import SessionNotFoundError
from contextstash_storage.postgres import (
    append_messages,
    full_text_search,
    leases,
    logs,
    messages,
    notifications,
    session_copy,
    session_news,
    sessions,
    unindexed_sessions,
)
from contextstash_storage.postgres.address import Address
from contextstash_storage.postgres.connection import RETRY_SECONDS, Connection, Database, connect
from contextstash_storage.postgres.dialect import output_of, run, stored_name
from contextstash_storage.postgres.migrations import migrate
from contextstash_storage.postgres.sessions import lock_session, read_session
from contextstash_storage.preparation.messages import Batch, is_large, prepare
from contextstash_storage.records import (
    LOCAL_OWNER,
    Appended,
    Copied,
    Count,
    Counters,
    KnownPart,
    Message,
    NewMessage,
    Output,
    SearchHit,
    Session,
    SessionNews,
    TokenSum,
)
from contextstash_storage.search.query import EVERYWHERE, SearchFilter
from contextstash_storage.sql.steps import Key, Steps
from contextstash_storage.sql.tokens import RowTokens
from contextstash_storage.store import MAX_INTEGER, Change, Placement, Read, SessionStore, Weigh

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


class PostgresStore(SessionStore):
    """A SessionStore in PostgreSQL, bound to one owner."""

    def __init__(self, database: Database, owner: str = LOCAL_OWNER) -> None:
        self.owner = owner
        self._database = database
        self._process = leases.ProcessLock(database.address)
        self._announcer = notifications.Announcer(database)
        self.tokens = RowTokens(self._of_owner, self._write_steps)

    def for_owner(self, owner: str) -> PostgresStore:
        other = copy.copy(self)
        other.owner = owner
        return other

    async def close(self) -> None:
        """Close the connections, after what runs on them; closing again does nothing."""
        await self._announcer.close()
        await self._process.close()
        await self._database.close()

    def changed_sessions(self) -> AsyncIterator[str | None]:
        """The ids of sessions as they change, by any process on any machine; None first, and whenever some may have
        been missed."""
        return notifications.changed_sessions(self._database, self.owner)

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
        **placed: Unpack[Placement],
    ) -> Appended:
        large = is_large(messages)
        prepared = await asyncio.to_thread(prepare, messages) if large else prepare(messages)
        batch = Batch(self.owner, session_id, prepared, count, **placed)
        return await self._write(session_id, lambda db: run(db, append_messages.append(batch)))

    async def read_messages(
        self, session_id: str, *, first: int = 0, last: int | None = None, bodies: bool = True
    ) -> list[Message]:
        end = MAX_INTEGER if last is None else last
        read = self._of_rows if not bodies or messages.are_few(end - first + 1) else self._together
        return await read(session_id, lambda db, key: messages.read_range(db, key, first, end, bodies=bodies))

    async def read_news(self, session_id: str, known: KnownPart) -> SessionNews:
        return await self._database.read(lambda db: session_news.read_news(db, self._key(session_id), known))

    async def read_messages_at(self, session_id: str, seqs: Sequence[int]) -> list[Message]:
        read = self._of_rows if messages.are_few(len(seqs)) else self._together
        return await read(session_id, lambda db, key: messages.read_at(db, key, seqs))

    async def search(
        self, query: str, where: SearchFilter = EVERYWHERE, *, limit: int = 10, weigh: Weigh | None = None
    ) -> list[SearchHit]:
        return await self._database.read(lambda db: full_text_search.search(db, self.owner, query, where, limit, weigh))

    async def unindex_sessions(self, session_ids: Sequence[str]) -> int:
        taken = 0
        for name in session_ids:
            with suppress(SessionNotFoundError):
                taken += await self._change(name, lambda key, _: unindexed_sessions.take_out(key), told=False)
        return taken

    async def index_session(self, session_id: str) -> bool:
        return await self._change(session_id, lambda key, _: unindexed_sessions.index_again(key), told=False)

    async def token_sums(self, session_id: str, width: int) -> list[TokenSum]:
        return await self._of_rows(session_id, lambda db, key: logs.token_sums(db, key, width))

    async def acquire_lease(self, session_id: str, purpose: str, holder: str, seconds: float) -> bool:
        await self._process.take()
        number = self._process.number
        return await self._locked(
            session_id, lambda db, key, _: leases.acquire(db, key, purpose, holder, seconds, number), told=False
        )

    def _key(self, session_id: str) -> Key:
        return self.owner, session_id

    async def _of_owner(self, read: Callable[[], Steps[Result]], *, together: bool = False) -> Result:
        return await (self._database.read if together else self._database.read_one)(lambda db: run(db, read()))

    async def _of_session(self, session_id: str, read: Read[Result], *, together: bool = False) -> Result:
        of = self._together if together else self._of_rows
        return await of(session_id, lambda db, key: run(db, read(key)))

    async def _of_rows(self, session_id: str, work: Callable[[Connection, Key], Awaitable[Result]]) -> Result:
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

    async def _change(self, session_id: str, change: Change[Result], *, told: bool = True) -> Result:
        return await self._locked(session_id, lambda db, key, session: run(db, change(key, session)), told=told)

    async def _locked(
        self, session_id: str, work: Callable[[Connection, Key, Session], Awaitable[Result]], *, told: bool
    ) -> Result:
        """What `work` returns for a session that no other transaction changes meanwhile."""
        key = self._key(session_id)

        async def locked(db: Connection) -> Result:
            return await work(db, key, await lock_session(db, key))

        result = await self._database.write(locked)
        if told:
            self._announcer.tell(self.owner, session_id)
        return result

    async def _write_steps(self, steps: Callable[[], Steps[Result]]) -> Result:
        return await self._database.write(lambda db: run(db, steps()))

    def _store_counters(self, key: Key, session: Session, counters: Counters) -> Steps[Session]:
        return sessions.store_counters(key, session, counters)

    def _output_of(self, row: Sequence[Any]) -> Output:
        return output_of(row)

    def _stored_name(self, name: Any) -> Any:
        return stored_name(name)

    async def _write(self, session_id: str, work: Callable[[Connection], Awaitable[Result]]) -> Result:
        """What `work`, which changes a session, returns."""
        result = await self._database.write(work)
        self._announcer.tell(self.owner, session_id)
        return result
