"""The embedded session store: one SQLite file, safely shared by several processes."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from contextstash_storage.codec import bodies
from contextstash_storage.codec.compact_form import COMPACT_FORM
from contextstash_storage.errors import EditConflictError, SessionNotFoundError, StoreError
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
from contextstash_storage.sqlite import (
    activity,
    full_text_search,
    hidden_sessions,
    leases,
    logs,
    proxied_sessions,
    requests,
    session_copy,
    view_edits,
)
from contextstash_storage.sqlite import session_extras as stored_extras
from contextstash_storage.sqlite.append_messages import Batch
from contextstash_storage.sqlite.batches import append_in_pieces
from contextstash_storage.sqlite.connection import BUSY_SECONDS, Connection, close, connect
from contextstash_storage.sqlite.deletion import PAUSE_SECONDS, Deletion
from contextstash_storage.sqlite.group_commit import GroupCommit
from contextstash_storage.sqlite.hidden_sessions import IS_SEEN
from contextstash_storage.sqlite.index_work import IndexWork, has_work, remove_former_index
from contextstash_storage.sqlite.message_rows import FEW, MessageRows, rows_at, rows_between
from contextstash_storage.sqlite.migrations import migrate
from contextstash_storage.sqlite.outputs import find_output, outputs_between
from contextstash_storage.sqlite.repeats import fingerprints, stored_fingerprint
from contextstash_storage.sqlite.rows import check_changes, from_json, now, session_row, to_json
from contextstash_storage.sqlite.search_index import is_indexed_later, queued_messages
from contextstash_storage.sqlite.session_news import NewsRows, read_news
from contextstash_storage.sqlite.tokens import SqliteTokens
from contextstash_storage.store import Count, EditsAfter, EditsBefore, Weigh
from contextstash_storage.totals import DaySum, StoreMark, ToolSum, Totals

Result = TypeVar("Result")


async def open_sqlite(path: Path, *, owner: str = LOCAL_OWNER, busy_seconds: float = BUSY_SECONDS) -> SqliteStore:
    """Open the database at `path`; it is created if it does not exist, readable only by its owner. The store is
    bound to the sessions of `owner`. A transaction waits `busy_seconds` for those of other processes.

    Raises StoreVersionError for one written by a newer contextstash, StoreError for one that cannot be used.
    """
    opening = asyncio.create_task(_open(path, owner, busy_seconds))
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
        await connection.run(migrate)
    except BaseException:
        await close(connection)
        raise
    return SqliteStore(connection, connection, owner)


async def _open(path: Path, owner: str, busy_seconds: float) -> SqliteStore:
    await asyncio.to_thread(_make_file, path)
    writer = await connect(path, busy_seconds=busy_seconds)
    try:
        await writer.run(migrate)
        await writer.write(remove_former_index)
        unindexed = await writer.read(has_work)
        hidden = await writer.read(hidden_sessions.any_hidden)
        reader = await connect(path, read_only=True, busy_seconds=busy_seconds)
    except BaseException:
        await close(writer)
        raise
    store = SqliteStore(writer, reader, owner)
    if hidden:
        store.finish_deletions()
    if unindexed:
        store.continue_indexing()
    return store


def _make_file(path: Path) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600, exist_ok=True)
        _close_to_others(path)
    except OSError as error:
        raise StoreError(f"The database {path} cannot be opened: {error.strerror}. Name another with --db.") from error


def _close_to_others(path: Path) -> None:
    """Remove the access of other users that an older program, a copy or a wide umask gave; SQLite gives the log and its
    index the mode of the database. A file of another user stays as it is."""
    if os.name == "nt":
        return
    for file in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
        with suppress(OSError):
            if file.stat().st_mode & 0o077:
                file.chmod(0o600)


MAX_INTEGER = 2**63 - 1


class SqliteStore:
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
        self.tokens = SqliteTokens(writer, reader, self._lock)

    def for_owner(self, owner: str) -> SqliteStore:
        """The same open database, bound to another owner. Closing either closes both."""
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
        """Continue, in the background, deletions and imports that a killed process left incomplete."""
        self._deletion.finish_later()

    def continue_indexing(self) -> None:
        """Index, in the background, what an upgrade or a killed process left for later."""
        self._index_work.start()

    async def owners(self) -> list[str]:
        return await self._column(f"SELECT DISTINCT owner FROM sessions WHERE {IS_SEEN} ORDER BY owner", ())

    async def read_extras(self, session_id: str) -> SessionExtras:
        return await self._of_session(session_id, stored_extras.read)

    async def put_extras(self, session_id: str, extras: SessionExtras) -> None:
        await self._change_session(session_id, lambda db, row: stored_extras.put(db, self.owner, row, extras))

    async def create_session(self, session: Session) -> Session:
        owned = session.model_copy(update={"owner": self.owner})

        def work(db: sqlite3.Connection) -> Session:
            session_copy.insert_session(db, owned)
            return session_row(db, self.owner, session.session_id)[1]

        return await self._write(work)

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
        while rows := await asyncio.to_thread(session_copy.read_rows, items, COMPACT_FORM):
            while rows:
                written = await self._write(lambda db, rows=rows: session_copy.write_piece(db, staged, rows))  # type: ignore[misc]
                staged.advance(rows.popleft() for _ in range(written))
                await asyncio.sleep(PAUSE_SECONDS)

    async def get_session(self, session_id: str) -> Session:
        return await self._reader.read(lambda db: session_row(db, self.owner, session_id)[1])

    async def list_sessions(
        self,
        *,
        limit: int = 50,
        before: str | None = None,
        parent: str | None = None,
        without_agent: str | None = None,
        by_message: bool = False,
    ) -> list[Session]:
        return await self._reader.read(
            lambda db: activity.sessions_of(db, self.owner, limit, before, parent, without_agent, by_message)
        )

    async def totals(self, *, without_agent: str = "") -> Totals:
        return await self._reader.read(lambda db: activity.totals(db, self.owner, without_agent))

    async def mark(self) -> StoreMark:
        return await self._reader.read(lambda db: activity.mark(db, self.owner))

    async def session_tools(self, session_id: str) -> list[ToolSum]:
        return await self._of_session(session_id, activity.session_tools)

    async def session_days(self, session_id: str) -> list[DaySum]:
        return await self._of_session(session_id, activity.session_days)

    async def find_session_ids(self, prefix: str, limit: int, *, without_agent: str | None = None) -> list[str]:
        return await self._column(
            "SELECT session_id FROM sessions WHERE owner = ? AND substr(session_id, 1, ?) = ? AND agent IS NOT ?"
            " ORDER BY updated_at DESC LIMIT ?",
            (self.owner, len(prefix), prefix, without_agent or "", limit),
        )

    async def _column(self, sql: str, values: Sequence[object]) -> list[str]:
        def work(db: sqlite3.Connection) -> list[str]:
            return [value for (value,) in db.execute(sql, tuple(values))]

        return await self._reader.read(work)

    async def update_session(self, session_id: str, **changes: Any) -> Session:
        check_changes(changes)

        def work(db: sqlite3.Connection) -> Session:
            row, _ = session_row(db, self.owner, session_id)
            for name, value in changes.items():
                stored = json.dumps(dict(value)) if name == "settings" else value
                db.execute(f"UPDATE sessions SET {name} = ? WHERE session = ?", (stored, row))
            db.execute("UPDATE sessions SET updated_at = ? WHERE session = ?", (now().isoformat(), row))
            return session_row(db, self.owner, session_id)[1]

        return await self._write(work)

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
        first_seq: int | None = None,
        batch_id: str | None = None,
        before: EditsBefore | None = None,
        cursor: Cursor | None = None,
        edits: EditsAfter | None = None,
    ) -> Appended:
        batch = Batch(self.owner, session_id, (), count, first_seq, batch_id, before, cursor, edits)
        appended = await append_in_pieces(self._group, batch, messages)
        if any(is_indexed_later(message) for message in messages):
            await self._index_work.wait()
        return appended

    async def read_fingerprints(self, session_id: str, *, first: int = 0) -> list[bytes]:
        return await self._of_session(session_id, lambda db, row: fingerprints(db, row, first, MAX_INTEGER - first))

    def fingerprint(self, body: Native) -> bytes:
        return stored_fingerprint(bodies.fingerprint(body))

    async def get_cursor(self, source: str) -> Cursor | None:
        records = await self._column("SELECT record FROM cursors WHERE owner = ? AND source = ?", (self.owner, source))
        return from_json(Cursor, records[0]) if records else None

    async def read_messages(
        self, session_id: str, *, first: int = 0, last: int | None = None, bodies: bool = True
    ) -> list[Message]:
        def rows(db: sqlite3.Connection) -> MessageRows:
            row, session = session_row(db, self.owner, session_id)
            end = session.counters.messages - 1 if last is None else last
            return rows_between(db, row, session_id, first, end, bodies=bodies)

        return await self._messages(rows)

    async def read_messages_at(self, session_id: str, seqs: Sequence[int]) -> list[Message]:
        def rows(db: sqlite3.Connection) -> MessageRows:
            return rows_at(db, session_row(db, self.owner, session_id)[0], session_id, seqs)

        return await self._messages(rows)

    async def find_key(self, session_id: str, key: str) -> int | None:
        def work(db: sqlite3.Connection) -> int | None:
            row, _ = session_row(db, self.owner, session_id)
            found = db.execute("SELECT seq FROM messages WHERE session = ? AND key = ?", (row, key)).fetchone()
            return None if found is None else int(found[0])

        return await self._reader.read(work)

    async def read_edits(self, session_id: str, *, after: int = 0) -> list[Edit]:
        def work(db: sqlite3.Connection) -> list[Edit]:
            row, session = session_row(db, self.owner, session_id)
            return view_edits.read_edits(db, row, session.counters.edits, after)

        return await self._reader.read(work)

    async def append_edits(
        self,
        session_id: str,
        edits: Sequence[Edit],
        *,
        expected: int,
        event: Event | None = None,
        own: bool = True,
    ) -> Session:
        numbered = await asyncio.to_thread(view_edits.number_edits, edits, expected)
        done = 0

        def checked(db: sqlite3.Connection) -> tuple[int, Session]:
            row, session = session_row(db, self.owner, session_id)
            if session.counters.edits != expected:
                raise EditConflictError(view_edits.CONFLICT)
            return row, session

        def stage(db: sqlite3.Connection) -> int:
            row, session = checked(db)
            return view_edits.stage_piece(db, row, session.counters, numbered, done)

        def publish(db: sqlite3.Connection) -> Session:
            row, session = checked(db)
            if done:
                view_edits.check_staged(db, row, numbered[-1])
                counters = view_edits.count_edits(db, row, session.counters, numbered, own=own)
            else:
                counters = view_edits.insert_numbered(db, row, session.counters, numbered, own=own)
            return _changed(db, row, session, counters, event)

        while len(numbered) > view_edits.EDITS_AT_ONCE and done < len(numbered):
            done = await self._write(stage)
            await asyncio.sleep(PAUSE_SECONDS)
        return await self._write(publish)

    async def change_counters(
        self, session_id: str, change: Callable[[Counters], Counters], *, event: Event | None = None
    ) -> Session:
        def work(db: sqlite3.Connection) -> Session:
            row, session = session_row(db, self.owner, session_id)
            return _changed(db, row, session, change(session.counters), event)

        return await self._write(work)

    async def read_news(self, session_id: str, known: KnownPart) -> SessionNews:
        def work(db: sqlite3.Connection) -> NewsRows:
            return read_news(db, self.owner, session_id, known)

        read = await self._reader.read(work)
        count = len(read.rows.rows)
        messages = read.rows.messages() if count <= FEW else await asyncio.to_thread(read.rows.messages)
        return replace(read.news, messages=tuple(messages))

    async def read_outputs(self, session_id: str, *, first: int = 0, last: int | None = None) -> list[Output]:
        end = MAX_INTEGER if last is None else last
        return await self._of_session(session_id, lambda db, row: outputs_between(db, row, first, end))

    async def find_output(self, handle: str, session_id: str | None = None) -> tuple[str, Output]:
        return await self._reader.read(lambda db: find_output(db, self.owner, handle, session_id))

    async def find_summary(self, summary_id: str, session_id: str | None = None) -> str | None:
        found = await self._column(
            "SELECT sessions.session_id FROM edits JOIN sessions USING (session)"
            " WHERE sessions.owner = ? AND sessions.session_id = ifnull(?, sessions.session_id)"
            " AND json_extract(edits.record, '$.summary_id') = ? ORDER BY sessions.updated_at DESC LIMIT 1",
            (self.owner, session_id, summary_id),
        )
        return found[0] if found else None

    async def find_handles(self, prefix: str, limit: int) -> list[str]:
        return await self._column(
            "SELECT DISTINCT handle FROM outputs JOIN sessions USING (session)"
            " WHERE sessions.owner = ? AND handle >= ? AND substr(handle, 1, ?) = ? ORDER BY handle LIMIT ?",
            (self.owner, prefix, len(prefix), prefix, limit),
        )

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
        return await self._reader.read(lambda db: full_text_search.search(db, self.owner, query, where, limit, weigh))

    async def unindexed_messages(self) -> int:
        return await self._reader.read(queued_messages)

    async def append_event(self, session_id: str, event: Event, level: str | None = None) -> None:
        def work(db: sqlite3.Connection) -> None:
            row, session = session_row(db, self.owner, session_id)
            logs.insert_event(db, row, event)
            if level is not None:
                counters = session.counters.model_copy(update={"level": level})
                db.execute(
                    "UPDATE sessions SET counters = ? WHERE session = ?",
                    (to_json(counters), row),
                )

        await self._write(work)

    async def read_events(self, session_id: str, *, after: int = 0, limit: int = 100) -> list[Event]:
        return await self._of_session(session_id, lambda db, row: logs.read_events(db, row, after, limit))

    async def last_events(self, session_id: str, kinds: Sequence[EventKind], limit: int) -> list[Event]:
        return await self._of_session(session_id, lambda db, row: logs.last_events(db, row, kinds, limit))

    async def token_sums(self, session_id: str, width: int) -> list[TokenSum]:
        return await self._of_session(session_id, lambda db, row: logs.token_sums(db, row, width))

    async def append_call(self, session_id: str, call: Call) -> None:
        await self._change_session(session_id, lambda db, row: logs.insert_call(db, row, call))

    async def last_calls(self, session_id: str, limit: int) -> list[Call]:
        return await self._of_session(session_id, lambda db, row: activity.last_calls(db, row, limit))

    async def read_calls(self, session_id: str, *, after: int = 0, limit: int = 100) -> list[Call]:
        return await self._of_session(session_id, lambda db, row: logs.read_calls(db, row, after, limit))

    async def declare(
        self, session_id: str, parts: Sequence[DeclaredVersion], change: Callable[[Declared, Sequence[int]], Declared]
    ) -> Session:
        def work(db: sqlite3.Connection) -> Session:
            row, session = session_row(db, self.owner, session_id)
            return _changed(db, row, session, requests.declare(db, row, session.counters, parts, change), None)

        return await self._write(work)

    async def read_declared(self, session_id: str, versions: Sequence[int] | None = None) -> list[DeclaredVersion]:
        return await self._of_session(session_id, lambda db, row: requests.read_declared(db, row, versions))

    async def append_request(self, session_id: str, request: Request) -> Request:
        def work(db: sqlite3.Connection) -> Request:
            row, session = session_row(db, self.owner, session_id)
            placed, counters = requests.insert_request(db, row, session.counters, request)
            _changed(db, row, session, counters, None)
            return placed

        return await self._write(work)

    async def read_requests(self, session_id: str, *, last: int = 1) -> list[Request]:
        return await self._of_session(session_id, lambda db, row: requests.read_requests(db, row, last))

    async def list_requests(self, session_id: str, *, after: int = 0, limit: int = 100) -> list[Request]:
        return await self._of_session(session_id, lambda db, row: requests.list_requests(db, row, after, limit))

    async def get_request(self, session_id: str, number: int) -> Request | None:
        return await self._of_session(session_id, lambda db, row: requests.read_request(db, row, number))

    async def book_usage(
        self, session_id: str, number: int, usage: Usage, change: Callable[[Counters], Counters], call: Call
    ) -> Session:
        def work(db: sqlite3.Connection) -> Session:
            row, session = session_row(db, self.owner, session_id)
            requests.book_usage(db, row, number, usage)
            logs.insert_call(db, row, call)
            return _changed(db, row, session, change(session.counters), None)

        return await self._write(work)

    async def acquire_lease(self, session_id: str, purpose: str, holder: str, seconds: float) -> bool:
        return await self._change_session(session_id, lambda db, row: leases.acquire(db, row, purpose, holder, seconds))

    async def release_lease(self, session_id: str, purpose: str, holder: str) -> None:
        with suppress(SessionNotFoundError):
            await self._change_session(session_id, lambda db, row: leases.release(db, row, purpose, holder))

    async def get_cached_summary(self, session_id: str, key: str) -> CachedSummary | None:
        return await self._of_session(session_id, lambda db, row: logs.read_cached_summary(db, row, key))

    async def put_cached_summary(self, session_id: str, key: str, summary: CachedSummary) -> None:
        await self._change_session(session_id, lambda db, row: logs.keep_summary(db, row, key, summary))

    async def get_proxied(self, session_id: str) -> ProxiedSession | None:
        return await self._of_session(session_id, proxied_sessions.read)

    async def put_proxied(self, session_id: str, proxied: ProxiedSession) -> None:
        await self._change_session(session_id, lambda db, row: proxied_sessions.keep(db, row, proxied))

    async def recent_proxied(self, since: float, limit: int) -> list[tuple[str, ProxiedSession]]:
        return await self._reader.read(lambda db: proxied_sessions.recent(db, self.owner, since, limit))

    async def _messages(self, rows: Callable[[sqlite3.Connection], MessageRows]) -> list[Message]:
        """The messages of these rows; many are made in a thread of their own."""

        def work(db: sqlite3.Connection) -> list[Message] | MessageRows:
            found = rows(db)
            return found.messages() if len(found.rows) <= FEW else found

        read = await self._reader.read(work)
        return await asyncio.to_thread(read.messages) if isinstance(read, MessageRows) else read

    async def _write(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """What `work` returns that writes, as one transaction."""
        async with self._lock:
            return await self._writer.write(work)

    async def _of_session(self, session_id: str, work: Callable[[sqlite3.Connection, int], Result]) -> Result:
        """What `work`, which only reads, returns for a session's row."""
        return await self._reader.read(lambda db: work(db, session_row(db, self.owner, session_id)[0]))

    async def _change_session(self, session_id: str, work: Callable[[sqlite3.Connection, int], Result]) -> Result:
        """What `work`, which writes, returns for a session's row."""
        return await self._write(lambda db: work(db, session_row(db, self.owner, session_id)[0]))


def _changed(db: sqlite3.Connection, row: int, session: Session, counters: Counters, event: Event | None) -> Session:
    """Store a session's counters, and an event with them; returns the changed session."""
    if event is not None:
        logs.insert_event(db, row, event)
    updated = now()
    db.execute(
        "UPDATE sessions SET counters = ?, updated_at = ? WHERE session = ?",
        (to_json(counters), updated.isoformat(), row),
    )
    return session.model_copy(update={"counters": counters, "updated_at": updated})
