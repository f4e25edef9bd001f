"""The session store in PostgreSQL: any number of processes on any number of machines. Each connection is used by one
thread at a time, and runs whole transactions, again if that is safe."""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict

from contextstash_storage.documents import CALL_WEIGHT, LETTERS, MORE_MATCHES, rarity
from contextstash_storage.errors import BadInputError, StoreBusyError, StoreError
from contextstash_storage.store import SessionStore
from contextstash_storage.transaction import (
    BUSY_SECONDS,
    VERSION,
    Address,
    Database,
    Found,
    Place,
    Result,
    Tx,
    TxWork,
    Words,
    check_version,
    listed,
    only,
    statements,
)

CONNECTIONS = 10
"""Of one process at most, as in asyncpg. Each costs the server about 10 MB."""

FIRST_PAUSE_SECONDS = 0.02
MAX_PAUSE_SECONDS = 1.0

COMMAND_SECONDS = 300.0
"""How long one statement may take. The longest writes the pieces of a session of a million messages."""

CONNECTION: dict[str, Any] = {
    "application_name": "contextstash",
    "connect_timeout": 10,
    # A server whose machine is gone without a word is noticed in a minute, else in 15 minutes to 2 hours.
    "tcp_user_timeout": 60_000,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}
"""What an address does not say; times are in seconds, that of TCP in milliseconds."""

WRITING, READING = "READ COMMITTED", "REPEATABLE READ READ ONLY"
"""The ways in which a transaction sees others."""

_COLLIDED = (errors.SerializationFailure, errors.DeadlockDetected, errors.LockNotAvailable)
_UNSTORABLE = (psycopg.DataError, UnicodeEncodeError, OverflowError)
_DRIVER_ERRORS = (psycopg.Error, *_UNSTORABLE)


class PostgresTx(Tx):
    """A transaction."""

    __slots__ = ()
    lock = " FOR UPDATE"
    numbers = "(SELECT CAST(value AS bigint) FROM json_array_elements_text(CAST(? AS json)) AS each (value))"
    texts = "(SELECT value FROM json_array_elements_text(CAST(? AS json)) AS each (value))"

    @staticmethod
    @lru_cache(maxsize=512)
    def spoken(text: str) -> bytes:
        """A statement with the driver's placeholders."""
        return text.replace("%", "%%").replace("?", "%s").encode()

    def reserve(self, table: str, column: str, count: int) -> list[int]:
        text = "SELECT nextval(pg_get_serial_sequence(?, ?)) FROM generate_series(1, CAST(? AS bigint))"
        return [number for (number,) in self.rows(text, (table, column, count))]

    def clock(self) -> float:
        # The server's, which all machines share.
        return float(only(self.rows("SELECT extract(epoch FROM clock_timestamp())")))

    def insert_words(self, session: int, owner: str, entries: Sequence[Words]) -> int:
        rows = []
        for entry, kind, *texts in entries:
            call, text = map(plain_words, texts)
            marks = [_owner_mark(owner), f"/s{session}", f"/k{kind}"]
            rows.append((entry, len(call.split()) + len(text.split()), marks, call, text))
        self.many(_INSERT, rows)
        return sum(count for _, count, *_ in rows)

    def attempts(self, place: Place, wanted: Sequence[str], ranks: int) -> Iterator[Found]:
        # As if vectors cost nothing to read, PostgreSQL would read them all.
        self.execute("SET LOCAL enable_seqscan = off")
        text = "SELECT coalesce(sum(entry_count), 0), coalesce(sum(word_count), 0) FROM sessions WHERE owner = ?"
        values = [place.owner]
        if place.sessions is not None:
            text += f" AND session IN {self.numbers}"
            values.append(listed(place.sessions))
        [(entries, words)] = self.rows(text, values)
        terms = self.rows(_COUNTS, (_marks(place), [plain_words(term) for term in wanted]))
        rare = [term for term, count in terms if 0 < count < COMMON_ENTRIES]
        telling = rare or [term for term, count in terms if count]
        if not telling or not entries:
            return
        found = (
            f"({_marks(place)}) & ({' | '.join(f'({term})' for term in telling)})",
            max(1.0, float(words) / int(entries)),
            [term for term, _ in terms],
            [rarity(count, int(entries)) for _, count in terms],
            len(terms),
        )
        for most in (ranks, MORE_MATCHES):
            rows = self.rows(_MATCHES, (*found, most))
            whole = [entry for entry, _, count in rows if count == len(terms)] if len(terms) > 1 else []
            yield Found({entry: score for entry, score, _ in rows}, whole, is_complete=len(rows) < most)


class PostgresDatabase(Database):
    """The connections of one store: one for each of its threads. Work can run several times, so it changes nothing but
    the database."""

    def __init__(self, address: Address, retry_seconds: float) -> None:
        self.address = address
        self._retry_seconds = retry_seconds
        self._threads = ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="contextstash-postgres")
        self._opened: dict[int, psycopg.Connection[Any]] = {}

    async def run(self, work: Callable[[psycopg.Connection[Any]], Result]) -> Result:
        """What `work` returns, run on a connection when a thread is free. What has begun runs to its end, even if its
        caller is cancelled. Raises StoreError after `close`."""
        try:
            running = self._threads.submit(lambda: work(self._connection()))
        except RuntimeError as error:
            raise StoreError("The session store is closed.") from error
        return await asyncio.wrap_future(running)

    def _connection(self) -> psycopg.Connection[Any]:
        """That of the thread which runs this."""
        thread = threading.get_ident()
        db = self._opened.get(thread)
        if db is None or db.closed:  # or broken
            db = psycopg.connect(**{**CONNECTION, **conninfo_to_dict(self.address.url)}, autocommit=True)
            self._opened[thread] = db
        return db

    async def close(self) -> None:
        await asyncio.to_thread(self._threads.shutdown)
        for db in self._opened.values():
            await asyncio.to_thread(db.close)

    async def forget(self, *_: object) -> bool:
        return True  # the bytes stay until new rows overwrite them, or VACUUM FULL rewrites the tables

    async def write(self, work: TxWork[Result], /) -> Result:
        return await self._again(work, WRITING)

    write_together = write

    async def read(self, work: TxWork[Result], /) -> Result:
        return await self._again(work, READING)

    async def _again(self, work: TxWork[Result], mode: str) -> Result:
        give_up = time.monotonic() + self._retry_seconds
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                return await self.run(partial(self._transaction, work, mode))
            except _DRIVER_ERRORS as error:
                passes = _is_unreachable(error) or isinstance(error, _COLLIDED)
                if not passes or time.monotonic() > give_up:
                    raise store_error(error) from error
            await asyncio.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE_SECONDS)

    def _transaction(self, work: TxWork[Result], mode: str, db: psycopg.Connection[Any]) -> Result:
        # Compiling a statement takes longer than ours do. One way to the server for all of it.
        limits = {"jit": "off", "lock_timeout": round(1_000 * self._retry_seconds)}
        limits["statement_timeout"] = round(1_000 * COMMAND_SECONDS)
        begin = "; ".join([f"BEGIN ISOLATION LEVEL {mode}", *(f"SET LOCAL {n} = {v}" for n, v in limits.items())])
        try:
            db.execute(begin.encode())
            result = work(PostgresTx(db))
        except BaseException:
            with suppress(psycopg.Error):
                db.execute("ROLLBACK")
            raise
        try:
            db.execute("COMMIT")
        except psycopg.Error as error:
            if mode == READING or not _is_unreachable(error):
                raise
            raise StoreError(
                "The connection to the database broke at the end of a transaction: it may be stored or not. Send"
                " the same again with what identifies it (first_seq, batch_id or keys)."
            ) from error
        return result


def _is_unreachable(error: BaseException) -> bool:
    """Whether the server was not there, or went away: the driver then has no code of an error of the server, or one of
    those of its end, or of too many connections."""
    if not isinstance(error, psycopg.OperationalError):
        return False
    state = error.sqlstate
    return state is None or state.startswith(("08", "57P", "53300"))


def _reason(error: BaseException) -> str:
    """What a driver's error says, without the values of rows that its detail may quote."""
    primary = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    return (primary or str(error) or type(error).__name__).strip().rstrip(".")


def store_error(error: BaseException) -> StoreError | BadInputError:
    """Our error for a driver's error, which says what it means and what to do."""
    if isinstance(error, errors.DiskFull):
        return StoreError("The database server's disk is full; nothing was written. Make room and try again.")
    if isinstance(error, _COLLIDED):
        return StoreBusyError(
            "The session, or the database, is locked by another process for too long; nothing was written. Try again in"
            " a moment."
        )
    if _is_unreachable(error):
        return StoreBusyError(
            f"The database server cannot be reached ({_reason(error)}); nothing was written. Try again in a moment."
        )
    if isinstance(error, _UNSTORABLE):
        return BadInputError(f"A name or number among the arguments cannot be stored: {_reason(error)}.")
    if isinstance(error, errors.InsufficientPrivilege):
        return StoreError(f"The database user may not do that: {_reason(error)}. Grant it that right.")
    return StoreError(f"The database could not do that: {_reason(error)}.")


LOCK = 0x636F6E7465787473
"""The advisory lock of making tables: the letters `contexts`."""

TYPES = {
    "INTEGER PRIMARY KEY": "bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
    " INTEGER": " bigint",
    " REAL": " double precision",
    " BLOB": " bytea",
    # Compared by its bytes, as in SQLite.
    " TEXT": ' text COLLATE "C"',
}
"""The types of schema.sql in PostgreSQL."""


async def open_postgres(address: Address, *, busy_seconds: float = BUSY_SECONDS) -> SessionStore:
    """Open the database at an address; its tables are made if they do not exist. A transaction waits `busy_seconds` for
    a connection or for a lock, and is tried again for so long if it failed for a reason that passes.

    Raises StoreError for one that is of another version or cannot be used."""
    database = PostgresDatabase(address, busy_seconds)
    try:
        await database.run(lambda _: None)
        await database.write(make_tables)
    except BaseException as error:
        await database.close()
        if not isinstance(error, (psycopg.Error, ValueError)):
            raise
        reason = _reason(error).replace(address.password, "***") if address.password else _reason(error)
        raise StoreError(
            f"The database {address} cannot be opened: {reason}. See that the server runs, and to the name, password"
            " and permissions in --db."
        ) from error
    store = SessionStore(database)
    store.deletions.finish_later()  # what killed processes left incomplete
    return store


def make_tables(tx: Tx) -> None:
    """Make the tables of a new database. Raises StoreError for a database of another version."""
    version = _version(tx)
    if not version:
        tx.execute("SELECT pg_advisory_xact_lock(?)", (LOCK,))
        version = _version(tx)  # another process may have made them meanwhile
    check_version(version)
    if not version:
        for statement in statements():
            for ours, its in TYPES.items():
                statement = statement.replace(ours, its)
            tx.execute(statement)
        for statement in WORDS_TABLE:
            tx.execute(statement)
        # They are compressed already.
        tx.execute("ALTER TABLE segments ALTER facts SET STORAGE EXTERNAL, ALTER contents SET STORAGE EXTERNAL")
        tx.execute("CREATE TABLE contextstash_version (version integer NOT NULL)")
        tx.execute("INSERT INTO contextstash_version VALUES (?)", (VERSION,))


def _version(tx: Tx) -> int:
    # Not by to_regclass, which may remember that there was none before another process made it.
    known = "SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename = 'contextstash_version'"
    return int(only(tx.rows("SELECT version FROM contextstash_version"))) if tx.rows(known) else 0


# The words of the index: vectors of the words that SQLite's `unicode61` reads, scored as there


WORDS_TABLE = (
    # English stems, and no stop words: as SQLite's `porter unicode61`.
    "CREATE TEXT SEARCH DICTIONARY contextstash_stem (TEMPLATE = snowball, LANGUAGE = english)",
    "CREATE TEXT SEARCH CONFIGURATION contextstash (COPY = pg_catalog.simple)",
    "ALTER TEXT SEARCH CONFIGURATION contextstash ALTER MAPPING FOR asciiword, word, numword WITH contextstash_stem",
    # The words of calls have weight A, those of texts D; marks of the place are in the vector too. `count` is of words.
    "CREATE TABLE words (rowid bigint PRIMARY KEY, count bigint NOT NULL, vector tsvector NOT NULL)",
    "CREATE INDEX words_by_word ON words USING gin (vector)",
)

COMMON_ENTRIES = 2_000
"""A term in more entries than this says little: it only adds to the score of what other terms find. Each entry takes
some 5 µs to score."""

MAX_CANDIDATES = 20_000
"""How many entries are scored at most."""

MAX_WORD_LENGTH = 500
"""Longer runs of letters are data. PostgreSQL takes words of at most 2,046 bytes."""

K1, B = 1.2, 0.75
"""The constants of BM25 in SQLite."""

_WEIGHTS = f"{{{1 / CALL_WEIGHT}, {1 / CALL_WEIGHT}, {1 / CALL_WEIGHT}, 1.0}}"
"""Of the words of texts (D) and of calls (A). `ts_rank_cd` of one term is the sum of the weights where it stands: with
CALL_WEIGHT before it, how often the term occurs, weighted as in SQLite."""

_INSERT = (
    "INSERT INTO words (rowid, count, vector) VALUES (?, ?, array_to_tsvector(CAST(? AS text[]))"
    " || setweight(to_tsvector('contextstash', ?), 'A') || to_tsvector('contextstash', ?))"
)

_COUNTS = f"""
SELECT CAST(term AS text), (
    SELECT count(*) FROM (
        SELECT FROM words
        WHERE vector @@ (CAST(? AS tsquery) && CAST(replace(CAST(term AS text), '<->', '&') AS tsquery))
        LIMIT {COMMON_ENTRIES}
    ) AS counted
)
FROM (SELECT DISTINCT phraseto_tsquery('contextstash', given) AS term FROM unnest(CAST(? AS text[])) AS given) AS terms
WHERE numnode(term) > 0
"""

# `setweight` of no words at all returns the vector as it is: taken out of its table's storage once, not for each term.
# `OFFSET 0` has the frequency computed once, and nothing sorted by vectors, which takes longer than all the rest.
_MATCHES = f"""
SELECT rowid, score, terms FROM (
    SELECT rowid, count, setweight(vector, 'D', CAST('{{}}' AS text[])) AS vector
    FROM words WHERE vector @@ CAST(? AS tsquery) LIMIT {MAX_CANDIDATES} OFFSET 0
) AS entry
CROSS JOIN LATERAL (
    SELECT count(*) AS terms,
        sum(weight * tf * {K1 + 1} / (tf + {K1} * ({1 - B} + {B} * entry.count / CAST(? AS float8)))) AS score
    FROM (
        SELECT weight, {CALL_WEIGHT} * ts_rank_cd('{_WEIGHTS}', vector, query) AS tf
        FROM unnest(CAST(CAST(? AS text[]) AS tsquery[]), CAST(? AS float8[])) AS term (query, weight)
        WHERE vector @@ query OFFSET 0
    ) AS frequency
) AS scored
ORDER BY CASE WHEN terms = ? THEN 1 ELSE 0 END DESC, score DESC, rowid DESC LIMIT ?
"""


def plain_words(text: str) -> str:
    """The words of a text as SQLite's `unicode61` reads them, between spaces, so that PostgreSQL's own parser (which
    sees paths, hosts and numbers with signs) has nothing left to interpret."""
    if not text.isascii():
        text = "".join(char for char in unicodedata.normalize("NFKD", text) if not unicodedata.combining(char))
    return " ".join(word for word in LETTERS.findall(text.lower()) if len(word) <= MAX_WORD_LENGTH)


def _owner_mark(owner: str) -> str:
    """An owner as one word of the index, which is in no text: it begins with a slash."""
    return f"/o{hashlib.sha256(owner.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def _marks(place: Place) -> str:
    """What every entry there has."""
    marks = [[_owner_mark(place.owner)]]
    if place.sessions is not None:
        marks.append([f"/s{session}" for session in place.sessions])
    if place.kinds:
        marks.append([f"/k{kind:d}" for kind in place.kinds])
    return " & ".join("(" + " | ".join(f"'{mark}'" for mark in some) + ")" for some in marks)
