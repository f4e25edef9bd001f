"""The embedded session store: one SQLite file, safely shared by several processes."""

from __future__ import annotations

import asyncio
import copy
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, Unpack

from contextstash_storage.errors import SessionNotFoundError, StoreError
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
from contextstash_storage.search.documents import is_indexed_later
from contextstash_storage.search.query_terms import EVERYWHERE, SearchFilter
from contextstash_storage.sql.prepared_messages import Batch, read_rows
from contextstash_storage.sql.steps import Key, Steps
from contextstash_storage.sql.version import VERSION
from contextstash_storage.sqlite import (
    full_text_search,
    hidden_sessions,
    leases,
    session_copy,
    token_sums,
)
from contextstash_storage.sqlite.append_messages import append_in_pieces
from contextstash_storage.sqlite.connection import (
    BUSY_SECONDS,
    PAUSE_SECONDS,
    Connection,
    GroupCommit,
    close,
    connect,
    run,
    session_row,
)
from contextstash_storage.sqlite.database_file import FindKey, make_file, no_key
from contextstash_storage.sqlite.deletion import Deletion
from contextstash_storage.sqlite.output_rows import output_of
from contextstash_storage.sqlite.rows import store_counters
from contextstash_storage.sqlite.schema import make_tables, note_version
from contextstash_storage.sqlite.search_index import IndexWork, has_work, queued_messages
from contextstash_storage.sqlite.unfinished_files import remove_unfinished
from contextstash_storage.store import Change, Placement, Read, SessionStore, Weigh
from contextstash_storage.tokens import TokenStore

Result = TypeVar("Result")


async def open_sqlite(
    path: Path, *, owner: str = LOCAL_OWNER, busy_seconds: float = BUSY_SECONDS, find_key: FindKey = no_key
) -> SqliteStore:
    """Open the database at `path`; it is created if it does not exist, readable only by its owner. The store is
    bound to the sessions of `owner`. A transaction waits `busy_seconds` for those of other processes. `find_key` is
    called on another thread, once.

    Raises StoreVersionError for one written by a newer contextstash, StoreError for one that cannot be used.
    """
    opening = asyncio.create_task(_open(path, owner, busy_seconds, cache(find_key)))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        with suppress(StoreError):
            await (await opening).close()
        raise


async def open_in_memory(*, owner: str = LOCAL_OWNER) -> SqliteStore:
    """A store in memory, which is gone when it is closed. One connection reads and writes: another would see a database
    of its own."""
    connection = await connect(Path(":memory:"))
    try:
        await connection.run(make_tables)
    except BaseException:
        await close(connection)
        raise
    return SqliteStore(connection, connection, owner)


async def _open(path: Path, owner: str, busy_seconds: float, find_key: FindKey) -> SqliteStore:
    await asyncio.to_thread(make_file, path)
    writer = await connect(path, find_key, busy_seconds=busy_seconds)
    try:
        await writer.run(make_tables)
        unindexed = await writer.read(has_work)
        hidden = await writer.read(hidden_sessions.any_hidden)
        reader = await connect(path, find_key, read_only=True, busy_seconds=busy_seconds)
        await reader.run(lambda db: note_version(db, VERSION))
    except BaseException:
        await close(writer)
        raise
    await asyncio.to_thread(remove_unfinished, path)
    store = SqliteStore(writer, reader, owner)
    if hidden:
        store.finish_deletions()
    if unindexed:
        store.continue_indexing()
    return store


class SqliteStore(SessionStore):
    """A SessionStore in one file, bound to one owner. One connection writes, behind a lock; another reads, so that
    reading never waits for a commit."""

    def __init__(self, writer: Connection, reader: Connection, owner: str = LOCAL_OWNER) -> None:
        self.owner = owner
        self._writer = writer
        self._reader = reader
        self._lock = asyncio.Lock()
        self._group = GroupCommit(writer, self._lock)
        self._deletion = Deletion(writer, self._lock)
        self._index_work = IndexWork(writer, self._lock)
        self.tokens = TokenStore(self._of_owner, self._write_steps)

    def for_owner(self, owner: str) -> SqliteStore:
        other = copy.copy(self)
        other.owner = owner
        return other

    async def close(self) -> None:
        """Close both connections, after running work; closing again does nothing. The writer is closed last: the
        last connection moves the log into the file, which a read-only one cannot do. A running deletion stops after its
        piece; the next opening of the database continues it."""
        await self._deletion.close()
        await self._index_work.close()
        await close(self._reader, self._writer)

    def finish_deletions(self) -> None:
        """Continue, in the background, what another process left incomplete: deletions and imports."""
        self._deletion.finish_later()

    def continue_indexing(self) -> None:
        """Index, in the background, what a killed process left for later."""
        self._index_work.start()

    async def copy_session(self, session: Session, items: Iterable[Copied]) -> Session | None:
        owned = session.model_copy(update={"owner": self.owner})
        staged = await self._write(lambda db: session_copy.begin(db, owned))
        if staged is None:
            return None
        try:
            await self._fill(staged, iter(items))
            stored = await self._write(lambda db: session_copy.publish(db, staged))
        except BaseException:
            await self._write(lambda db: session_copy.abandon(db, staged))
            self._deletion.finish_later()
            raise
        if stored is None:
            self._deletion.finish_later()
        self._index_work.start()
        return stored

    async def _fill(self, staged: session_copy.Staged, items: Iterator[Copied]) -> None:
        while rows := await asyncio.to_thread(read_rows, items):
            while rows:
                written = await self._write(lambda db, rows=rows: session_copy.write_piece(db, staged, rows))  # type: ignore[misc]
                staged.advance(rows.popleft() for _ in range(written))
                await asyncio.sleep(PAUSE_SECONDS)

    async def delete_session(self, session_id: str, *, along: Sequence[str] = ()) -> bool:
        def work(db: sqlite3.Connection) -> None:
            hidden_sessions.hide(db, self.owner, session_id)
            for other in along:
                with suppress(SessionNotFoundError):
                    hidden_sessions.hide(db, self.owner, other)

        await self._write(work)
        return await self._deletion.finish()

    async def append_messages(
        self,
        session_id: str,
        messages: Sequence[NewMessage],
        *,
        count: Count,
        **placed: Unpack[Placement],
    ) -> Appended:
        batch = Batch(self.owner, session_id, (), count, **placed)
        appended = await append_in_pieces(self._group, batch, messages)
        if any(is_indexed_later(message) for message in messages):
            await self._index_work.wait()
        return appended

    async def search(
        self, query: str, where: SearchFilter = EVERYWHERE, *, limit: int = 10, weigh: Weigh | None = None
    ) -> list[SearchHit]:
        return await self._reader.read(lambda db: full_text_search.search(db, self.owner, query, where, limit, weigh))

    async def unindexed_messages(self) -> int:
        return await self._reader.read(queued_messages)

    async def token_sums(self, session_id: str, width: int) -> list[TokenSum]:
        return await self._of_row(session_id, lambda db, row: token_sums.token_sums(db, row, width))

    async def acquire_lease(self, session_id: str, purpose: str, holder: str, seconds: float) -> bool:
        return await self._write(
            lambda db: leases.acquire(db, session_row(db, self.owner, session_id)[0], purpose, holder, seconds)
        )

    async def _of_owner(self, read: Callable[[], Steps[Result]], *, together: bool = False) -> Result:
        return await self._reader.read(lambda db: run(db, read()))

    async def _of_session(self, session_id: str, read: Read[Result], *, together: bool = False) -> Result:
        return await self._of_row(session_id, lambda db, row: run(db, read((row,))))

    async def _change(self, session_id: str, change: Change[Result]) -> Result:
        def work(db: sqlite3.Connection) -> Result:
            row, session = session_row(db, self.owner, session_id)
            return run(db, change((row,), session))

        return await self._write(work)

    async def _write_steps(self, steps: Callable[[], Steps[Result]]) -> Result:
        return await self._write(lambda db: run(db, steps()))

    def _store_counters(self, key: Key, session: Session, counters: Counters) -> Steps[Session]:
        return store_counters(key, session, counters)

    def _insert_session(self, session: Session) -> Steps[bool]:
        return session_copy.insert_session(session)

    def _output_of(self, row: Sequence[Any]) -> Output:
        return output_of(row)

    def _stored_name(self, name: Any) -> Any:
        return name

    async def _write(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """What `work` returns that writes, as one transaction."""
        async with self._lock:
            return await self._writer.write(work)

    async def _of_row(self, session_id: str, work: Callable[[sqlite3.Connection, int], Result]) -> Result:
        """What `work`, which only reads, returns for a session's row."""
        return await self._reader.read(lambda db: work(db, session_row(db, self.owner, session_id)[0]))
