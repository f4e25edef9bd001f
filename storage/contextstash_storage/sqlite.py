"""The embedded session store: one SQLite file, safely shared by several processes.

    store = await open_sqlite(Path("sessions.db"))

Open it once in a process: its threads and caches are shared by all sessions.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import aiosqlite

from contextstash_storage import database_file, log, notes
from contextstash_storage.documents import CALL_WEIGHT, MORE_MATCHES, rarity
from contextstash_storage.errors import BadInputError, ContextstashError, StoreBusyError, StoreError
from contextstash_storage.messages import messages_at, read_outputs
from contextstash_storage.sessions import HIDDEN_OWNER, PAUSE_SECONDS, PIECE_SECONDS, read_session
from contextstash_storage.store import SessionStore
from contextstash_storage.transaction import (
    BUSY_SECONDS,
    VERSION,
    Database,
    Found,
    Place,
    Result,
    Tx,
    TxWork,
    Words,
    only,
    statements,
)

BEGIN_WRITING = "BEGIN IMMEDIATE"

LOOK_SECONDS = (0.0005, 0.003)
"""Shortest and longest time after which it is tried again to take the write lock, chosen at random so that no process
is always first. An attempt takes about 20 µs; with 8 processes that write all the time none waited for over a second
(bench/speed)."""


class SqliteTx(Tx):
    """A transaction, or what runs on a connection without one."""

    __slots__ = ()
    numbers = texts = "(SELECT value FROM json_each(?))"

    def reserve(self, table: str, column: str, count: int) -> list[int]:
        last = int(only(self.rows(f"SELECT coalesce(max({column}), 0) FROM {table}")))
        return list(range(last + 1, last + 1 + count))

    def clock(self) -> float:
        # Which all processes of a machine share. The time of day can be set: then a lease would end early or never.
        return time.monotonic()

    def insert_words(self, session: int, owner: str, entries: Sequence[Words]) -> int:
        rows = [(entry, f"s{session} k{kind}", call, text) for entry, kind, call, text in entries]
        self.many("INSERT INTO words (rowid, place, call, text) VALUES (?, ?, ?, ?)", rows)
        return 0  # FTS5 counts them itself

    def attempts(self, place: Place, wanted: Sequence[str], ranks: int) -> Iterator[Found]:
        # An entry has one of these marks.
        marked = [[f"k{kind:d}" for kind in place.kinds], [f"s{session}" for session in place.sessions or ()]]
        others = only(self.rows("SELECT coalesce(max(entry), 0) FROM entries")) - place.entries
        # bm25 counts all rows that have a mark. If these are nearly all, it takes less time to rank the others too.
        is_most = not place.is_database_shared and 0 <= 8 * others < place.entries
        places = [f"place : ({_any_of(marks)})" for marks in marked[: 1 if is_most else 2] if marks]
        if place.is_database_shared:
            yield Found(*_own_entries(self, place, wanted, places), is_complete=True)
            return
        for count in (ranks + others * is_most, MORE_MATCHES):
            scores = dict(self.rows(_BEST, (CALL_WEIGHT, _expression(wanted, "OR", places), count)))
            # Those with all terms, whatever their rank, since one term of a call outweighs many of a text.
            having_all = (CALL_WEIGHT, _expression(wanted, "AND", places), count)
            whole = dict(self.rows(_BEST, having_all)) if len(wanted) > 1 else {}
            yield Found({**whole, **scores}, whole.keys(), is_complete=len(scores) < count)


@contextmanager
def translated() -> Iterator[None]:
    """What the driver raises here becomes an error that says what to do."""
    try:
        yield
    except (database_file.DriverError, UnicodeDecodeError) as error:
        raise database_file.store_error(error) from error
    except (UnicodeEncodeError, OverflowError) as error:
        raise BadInputError(f"A name or number among the arguments cannot be stored: {error}.") from error


@translated()
def in_transaction(
    db: sqlite3.Connection, work: TxWork[Result], begin: str = BEGIN_WRITING, *, checked: bool = True
) -> Result:
    """Run `work` between `begin` and COMMIT; roll back on any error. Raises StoreError if the database is not
    `checked` to be of this version: a newer program may have brought it to another since it was opened, and this one
    would misread it, or write what the newer one does not expect."""
    if begin == BEGIN_WRITING:
        # For the write lock SQLite has no queue: a process that waits in SQLite's own way looks ever more rarely, up to
        # every 100 ms, and may find the lock taken by others for seconds. Looking often makes it even.
        with _waiting(db, 0) as limit:
            _until_free(db, BEGIN_WRITING, limit / 1_000)
    else:
        db.execute(begin)
    try:
        tx = SqliteTx(db)
        if checked and (version := int(only(tx.rows("PRAGMA user_version")))) != VERSION:
            raise StoreError(
                f"A newer contextstash has brought the database from version {VERSION} to {version}: restart this"
                " program. Nothing was written."
            )
        result = work(tx)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    return result


@contextmanager
def _waiting(db: sqlite3.Connection, milliseconds: int) -> Iterator[int]:
    """A time in which SQLite itself waits at most for so long for a lock; gives for how long it usually does."""
    [usual] = db.execute("PRAGMA busy_timeout").fetchone()
    db.execute(f"PRAGMA busy_timeout = {milliseconds}")
    try:
        yield int(usual)
    finally:
        db.execute(f"PRAGMA busy_timeout = {usual}")


def _until_free(db: sqlite3.Connection, statement: str, seconds: float) -> None:
    """Execute a statement, again and again for so long while another process has the lock that it needs."""
    give_up = time.monotonic() + seconds
    while True:
        try:
            db.execute(statement)
            return
        except database_file.DriverError as error:
            if database_file.primary_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > give_up:
                raise
        time.sleep(random.uniform(*LOOK_SECONDS))


@translated()
def connect(
    path: Path, find_key: database_file.FindKey, busy_seconds: float, *, is_first: bool = True
) -> sqlite3.Connection:
    """A connection in write-ahead mode, of which every commit is on the disk when it returns; the first makes the
    database if it does not exist, all others only read."""

    def prepare(db: sqlite3.Connection) -> None:
        # If two processes do that to a new file at the same time, SQLite refuses one of them without waiting.
        _until_free(db, "PRAGMA journal_mode = WAL", busy_seconds)
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA temp_store = MEMORY")
        db.execute("PRAGMA cache_size = -2000")  # KiB: with SQLCipher's 8,000 nothing of bench.speed is quicker
        db.execute("PRAGMA secure_delete = ON")
        if is_first:
            make_tables(db)
        else:
            db.execute("PRAGMA query_only = ON")

    options: dict[str, Any] = {"timeout": busy_seconds, "cached_statements": 256}
    if is_first:
        database_file.make_file(path)
    db = database_file.open_file(path, find_key, prepare, isolation_level=None, check_same_thread=False, **options)
    if is_first:
        database_file.remove_unfinished(path)
    return db


def make_tables(db: sqlite3.Connection) -> None:
    """Make the tables of a new database."""

    def make(tx: Tx) -> None:
        if not database_file.read_version(db):  # no other process was faster
            for statement in (*statements(), WORDS_TABLE, f"PRAGMA user_version = {VERSION}"):
                tx.execute(statement)

    if not database_file.read_version(db):
        in_transaction(db, make, checked=False)


class Connection(aiosqlite.Connection):
    """A connection of aiosqlite that runs whole functions in its thread: a switch of threads for each statement takes
    about 200 µs, and a transaction would stay open if an await between two was cancelled."""

    db: sqlite3.Connection | None = None

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        def connector() -> sqlite3.Connection:
            self.db = connect()
            return self.db

        super().__init__(connector, iter_chunk_size=64)
        self._thread.daemon = True  # a program that does not close its store must end all the same

    async def open(self) -> None:
        try:
            await self
        except BaseException:
            await asyncio.to_thread(self._thread.join)  # it would print an error if a hook had closed the event loop
            raise

    async def run(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """What `work` returns. It runs to its end, even if the caller is cancelled. Raises StoreError after `close`."""
        if self.db is None:
            raise StoreError("The session store is closed.")
        return await self._execute(work, self.db)  # type: ignore[no-any-return, no-untyped-call]

    async def close(self) -> None:
        if self.db is not None:
            self.db = None
            await super().close()


MAX_TOGETHER = 16
"""Writes of one commit: 16 messages of usual size take about 10 ms, in which other processes wait."""

LOG_WAIT_MILLISECONDS = 100
"""How long truncating the log may wait for readers in one attempt: SQLite keeps the write lock meanwhile."""

LOG_SECONDS = 5.0
"""How long a deletion waits for readers of other processes until the log can be truncated. Ours read for some ms."""

MERGED_PAGES = 64
"""Pages of the search index, of 4 KB, that are merged between two looks at the clock."""

SMALL_FILE_BYTES = 8 * 2**20
"""A file up to this size is rewritten after a deletion, which takes less time than one piece may take."""


class SqliteDatabase(Database):
    """One connection writes, one transaction after another; another reads, so that reading never waits for a commit;
    or one does both, which is opened sooner."""

    def __init__(self, path: Path, find_key: database_file.FindKey, busy_seconds: float, *, is_brief: bool) -> None:
        connecting = partial(connect, path, find_key, busy_seconds)
        self.writer = Connection(connecting)
        self.reader = self.writer if is_brief else Connection(partial(connecting, is_first=False))
        self._waiting: deque[tuple[TxWork[Any], Future[Any]]] = deque()

    async def read(self, work: TxWork[Result], /) -> Result:
        return await self.reader.run(lambda db: in_transaction(db, work, "BEGIN"))

    async def write(self, work: TxWork[Result], /) -> Result:
        return await self.writer.run(lambda db: in_transaction(db, work))

    async def write_together(self, work: TxWork[Result], /) -> Result:
        outcome: Future[Result] = Future()
        self._waiting.append((work, outcome))
        try:
            while not outcome.done():
                await self.writer.run(self._commit)
        except BaseException:
            outcome.cancel()  # unless it is on its way
            raise
        return outcome.result()

    def _commit(self, db: sqlite3.Connection) -> None:
        """Commit those that wait longest. Each brings such a turn, so that all get theirs, and other writes between."""
        group: list[tuple[TxWork[Any], Future[Any]]] = []
        while self._waiting and len(group) < MAX_TOGETHER:
            work, outcome = self._waiting.popleft()
            if outcome.set_running_or_notify_cancel():
                group.append((work, outcome))
        results = _together(db, [work for work, _ in group]) if group else []
        for (_, outcome), result in zip(group, results, strict=True):
            if isinstance(result, Exception):
                outcome.set_exception(result)
            else:
                outcome.set_result(result)

    async def close(self) -> None:
        try:
            await self.reader.close()
        finally:  # even if the caller is cancelled
            await self.writer.close()  # the last connection moves the log into the file, which a read-only one cannot

    async def forget(
        self, pieces: Callable[[TxWork[bool]], Awaitable[bool]], closing: asyncio.Event, had_words: bool, /
    ) -> bool:
        # FTS5 counts the pages that it writes, and deleted words are only read: a piece of a merge takes about 0.5 s of
        # CPU time for each 10 MB of deleted text that stands together.
        if had_words:
            await self.write(lambda tx: _merge(tx, -MERGED_PAGES))
            if not await pieces(_merged_piece):
                return False
            await self.write(_rewrite_terms)
        await self.writer.run(_rewrite_small_file)
        give_up = time.monotonic() + LOG_SECONDS
        while not closing.is_set():
            if await self.writer.run(_truncate_log):
                return True
            if time.monotonic() > give_up:
                return False
            await asyncio.sleep(PAUSE_SECONDS)
        return False


def _together(db: sqlite3.Connection, works: Sequence[TxWork[Any]]) -> list[Any]:
    """What each returns in one transaction, or the exception that it raises. If one fails, all are rolled back and run
    again, each alone: that is rare, and shows which of them it was."""
    try:
        return in_transaction(db, lambda tx: [work(tx) for work in works])
    except Exception as error:
        # If the lock was not to be had, each would wait for it as long again.
        if len(works) <= 1 or isinstance(error, StoreBusyError):
            return [error] * len(works)
    return [outcome for work in works for outcome in _together(db, [work])]


def _merge(tx: Tx, pages: int) -> int:
    """Merge about `pages` pages of the index; returns how many rows of it that changed. A negative number first marks
    the whole index for merging: once that is merged, no deleted word is left."""
    before = only(tx.rows("SELECT total_changes()"))
    tx.execute("INSERT INTO words (words, rank) VALUES ('merge', ?)", (pages,))
    return int(only(tx.rows("SELECT total_changes()"))) - int(before)


def _merged_piece(tx: Tx) -> bool:
    """Merge the index for the time of a piece; False if it is all merged."""
    until = time.monotonic() + PIECE_SECONDS
    while time.monotonic() < until:
        if _merge(tx, MERGED_PAGES) < 2:  # FTS5's own sign; the command itself is one change
            return False
    return True


MAX_REWRITTEN = 50_000
"""Pages of the index, of 4 KB, up to which its table of page starts is written again after a deletion: that many take
about 60 ms."""


def _rewrite_terms(tx: Tx) -> None:
    """Write the index's table of page starts again. It holds single words, and its rows are ordered by key: when they
    move from page to page, SQLite leaves copies of them in the unused part of pages. It is 0.5 % of the index."""
    if only(tx.rows("SELECT count(*) FROM words_idx")) <= MAX_REWRITTEN:
        rows = tx.rows("SELECT segid, term, pgno FROM words_idx ORDER BY segid, term")
        tx.execute("DELETE FROM words_idx")
        tx.many("INSERT INTO words_idx (segid, term, pgno) VALUES (?, ?, ?)", rows)


@translated()
def _rewrite_small_file(db: sqlite3.Connection) -> None:
    """Rewrite a small file, which removes every copy that SQLite may have left in the unused part of a page, in indexes
    too. Free pages, which later messages fill, do not count."""
    names = ("page_count", "freelist_count", "page_size")
    pages, free, size = (int(db.execute(f"PRAGMA {name}").fetchone()[0]) for name in names)  # SQLCipher's is a text
    if (pages - free) * size <= SMALL_FILE_BYTES:
        db.execute("VACUUM")


@translated()
def _truncate_log(db: sqlite3.Connection) -> bool:
    """Move the write-ahead log into the file and cut it to nothing; False if readers of an older state are in the way.
    Most is moved before the write lock is taken."""
    db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    with _waiting(db, LOG_WAIT_MILLISECONDS):
        [busy, _, _] = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return not busy


async def open_sqlite(
    path: Path,
    *,
    busy_seconds: float = BUSY_SECONDS,
    find_key: database_file.FindKey = lambda: None,
    is_brief: bool = False,
) -> SessionStore:
    """Open the database at `path`; it is created if it does not exist, readable only by its owner. A transaction waits
    `busy_seconds` for those of other processes. `find_key` is called on another thread, once. What is used briefly, as
    a hook is, has one connection, and leaves to others what killed processes left incomplete.

    Raises StoreError for one that is of another version or cannot be used."""
    database = SqliteDatabase(path, cache(find_key), busy_seconds, is_brief=is_brief)
    try:
        await database.writer.open()
        if not is_brief:
            await database.reader.open()
    except BaseException:
        await database.close()
        raise
    store = SessionStore(database)
    if not is_brief:
        store.deletions.finish_later()  # what killed processes left incomplete
    return store


@dataclass(frozen=True, slots=True)
class Health:
    """The state of a database file. `check` is `ok` or SQLite's first complaint. `damaged` are the sessions of which
    something cannot be read, and what; all others are whole."""

    sessions: int
    check: str
    damaged: tuple[tuple[str, str], ...] = ()
    encrypted: bool = False


def look_at(path: Path, find_key: database_file.FindKey = lambda: None) -> Health:
    """Check a database file. Raises StoreError if it can't be read, also if it is of another version."""
    with translated(), closing(database_file.open_file(path, find_key, read_only=True)) as db:
        [check] = db.execute("PRAGMA integrity_check(1)").fetchone()
        encrypted, tx = database_file.is_encrypted(db), SqliteTx(db)
        sessions = tx.rows("SELECT session_id, owner FROM sessions WHERE owner <> ?", (HIDDEN_OWNER,))
        damaged = tuple((name, why) for name, owner in sessions if (why := _damage(tx, owner, name)))
    return Health(len(sessions), str(check), damaged, encrypted)


def _damage(tx: SqliteTx, owner: str, session_id: str) -> str | None:
    """What of a session cannot be read; None if all of it can."""
    try:
        row, session = read_session(tx, owner, session_id)
        for first in range(0, session.counters.messages, 500):  # in memory at a time
            messages_at(tx, row, session, range(first, first + 500))
        read_outputs(tx, row)
        log.check(tx, row, session)
        notes.check(tx, row)
    except (ContextstashError, database_file.DriverError, ValueError, OverflowError) as error:
        return str(error)
    return None


# The words of the index: an FTS5 table that holds no texts, and forgets a row by its number


WORDS_TABLE = (
    "CREATE VIRTUAL TABLE words USING fts5 (text, call, place, content = '', contentless_delete = 1,"
    " tokenize = 'porter unicode61')"
)

_BM25 = "bm25(words, 1.0, ?, 0.0)"
"""Of the columns text, call, whose weight is a value, and place."""

_BEST = f"SELECT rowid, -{_BM25} AS score FROM words WHERE words MATCH ? ORDER BY score DESC, rowid DESC LIMIT ?"
_OWN = f"""
SELECT entry, -{_BM25} AS score FROM words
CROSS JOIN entries ON entry = words.rowid CROSS JOIN sessions USING (session)
WHERE words MATCH ? AND sessions.owner = ?
"""


def _own_entries(
    tx: Tx, place: Place, wanted: Sequence[str], marks: Sequence[str]
) -> tuple[dict[int, float], set[int]]:
    """All entries of the owner with any term and with all marks, and their scores; and those with all of several."""
    indexed = only(tx.rows("SELECT count(*) FROM entries"))
    scores: dict[int, float] = {}
    having_all: set[int] | None = None
    for term in wanted:
        count = only(tx.rows("SELECT count(*) FROM words WHERE words MATCH ?", (_expression([term], "OR", ()),)))
        found = dict(tx.rows(_OWN, (CALL_WEIGHT, _expression([term], "OR", marks), place.owner)))
        factor = rarity(len(found), place.entries) / rarity(count, indexed)
        for entry, score in found.items():
            scores[entry] = scores.get(entry, 0.0) + factor * score
        having_all = set(found) if having_all is None else having_all & found.keys()
    return scores, having_all if having_all and len(wanted) > 1 else set()


def _expression(wanted: Sequence[str], operator: str, marks: Sequence[str]) -> str:
    """The query for FTS5, each term quoted so that no character in it is an operator."""
    return " AND ".join([f"{{call text}} : ({_any_of(wanted, operator)})", *marks])


def _any_of(words: Sequence[str], operator: str = "OR") -> str:
    return f" {operator} ".join(f'"{word}"' for word in words)
