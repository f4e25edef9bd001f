"""The session store in PostgreSQL: any number of processes on any number of machines."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar, Unpack

from contextstash_storage.errors import SessionNotFoundError
from contextstash_storage.postgres import (
    append_messages,
    full_text_search,
    leases,
    session_copy,
    sessions,
    token_sums,
)
from contextstash_storage.postgres.address import Address
from contextstash_storage.postgres.connection import RETRY_SECONDS, Database, connect
from contextstash_storage.postgres.dialect import output_of, run, stored_name
from contextstash_storage.postgres.schema import make_tables
from contextstash_storage.records import (
    LOCAL_OWNER,
    Appended,
    Copied,
    Count,
    Counters,
    NewMessage,
    Output,
    SearchHit,
    Session,
    TokenSum,
)
from contextstash_storage.search.query_terms import EVERYWHERE, SearchFilter
from contextstash_storage.sql.prepared_messages import Batch, is_large, prepare
from contextstash_storage.sql.rows import read_session
from contextstash_storage.sql.steps import Key, Steps
from contextstash_storage.store import Change, Placement, Read, SessionStore, Weigh
from contextstash_storage.tokens import TokenStore

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
        await database.write(make_tables)
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
        self.tokens = TokenStore(self._of_owner, self._write_steps)

    def for_owner(self, owner: str) -> PostgresStore:
        other = copy.copy(self)
        other.owner = owner
        return other

    async def close(self) -> None:
        """Close the connections, after what runs on them; closing again does nothing."""
        await self._process.close()
        await self._database.close()

    async def copy_session(self, session: Session, items: Iterable[Copied]) -> Session | None:
        owned = session.model_copy(update={"owner": self.owner})
        return await self._database.write_once(lambda db: session_copy.copy_session(db, owned, items))

    async def delete_session(self, session_id: str, *, along: Sequence[str] = ()) -> bool:
        def steps() -> Steps[None]:
            yield from sessions.delete_session(self._key(session_id))
            for other in along:
                with suppress(SessionNotFoundError):
                    yield from sessions.delete_session(self._key(other))

        await self._write_steps(steps)
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
        return await self._write_steps(lambda: append_messages.append(batch))

    async def search(
        self, query: str, where: SearchFilter = EVERYWHERE, *, limit: int = 10, weigh: Weigh | None = None
    ) -> list[SearchHit]:
        return await self._database.read(lambda db: full_text_search.search(db, self.owner, query, where, limit, weigh))

    async def token_sums(self, session_id: str, width: int) -> list[TokenSum]:
        return await self._of_session(session_id, lambda key: token_sums.token_sums(key, width))

    async def acquire_lease(self, session_id: str, purpose: str, holder: str, seconds: float) -> bool:
        await self._process.take()
        process = self._process.number
        return await self._change(session_id, lambda key, _: leases.acquire(key, purpose, holder, seconds, process))

    def _key(self, session_id: str) -> Key:
        return self.owner, session_id

    async def _of_owner(self, read: Callable[[], Steps[Result]], *, together: bool = False) -> Result:
        return await (self._database.read if together else self._database.read_one)(lambda db: run(db, read()))

    async def _of_session(self, session_id: str, read: Read[Result], *, together: bool = False) -> Result:
        """Whether there is such a session is asked only if one statement has found nothing: each question is a round
        trip."""
        key = self._key(session_id)
        if together:
            return await self._database.read(lambda db: run(db, sessions.checked(key, read)))
        found = await self._database.read_one(lambda db: run(db, read(key)))
        if not found:
            await self._database.read_one(lambda db: run(db, sessions.check_session(key)))
        return found

    async def _change(self, session_id: str, change: Change[Result]) -> Result:
        def steps() -> Steps[Result]:
            key, session = yield from read_session(self.owner, session_id, locked=True)
            return (yield from change(key, session))

        return await self._write_steps(steps)

    async def _write_steps(self, steps: Callable[[], Steps[Result]]) -> Result:
        return await self._database.write(lambda db: run(db, steps()))

    def _insert_session(self, session: Session) -> Steps[bool]:
        return sessions.insert_session(session)

    def _store_counters(self, key: Key, session: Session, counters: Counters) -> Steps[Session]:
        return sessions.store_counters(key, session, counters)

    def _output_of(self, row: Sequence[Any]) -> Output:
        return output_of(row)

    def _stored_name(self, name: Any) -> Any:
        return stored_name(name)
