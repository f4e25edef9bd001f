"""What the store's functions run on: a transaction of either database, in a thread.

    def name_of(tx: Tx, number: int) -> str | None:
        return only(tx.rows("SELECT name FROM things WHERE thing = ?", (number,)))

A statement exists once: its values are `?`, and what the databases say differently are attributes of the transaction.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from typing import Any, Protocol, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from contextstash_storage.errors import BadInputError, StoreError

MAX_INTEGER = 2**63 - 1

BUSY_SECONDS = 10.0
"""How long a transaction waits for those of other processes, and for a server that is started again, which takes 1 to
3 s."""

VERSION = 23
"""Of the tables, in every kind of database. Databases of versions below were made before the first release."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a query searches: in `sessions`, or in all of the owner if it is None, and only rows of `kinds`, if there
    are some. `entries` is how many rows the sessions have, 0 if all of the only owner are searched."""

    owner: str
    sessions: tuple[int, ...] | None
    kinds: tuple[int, ...]
    entries: int
    is_database_shared: bool


@dataclass(frozen=True, slots=True)
class Found:
    """Entries by score, and those that have all terms. There are no others if they are `is_complete`."""

    scores: Mapping[int, float]
    having_all: Iterable[int]
    is_complete: bool


Words = tuple[int, int, str, str]
"""The number of an entry, its kind, and its words: those of a call's arguments, and those of another text."""


class Tx:
    """A transaction on a connection of either driver."""

    __slots__ = ("_db",)

    lock = ""
    """After a SELECT of a session: keeps other transactions from changing it."""
    numbers: str
    """A subquery: the numbers in a list, whose JSON is its value."""
    texts: str
    """The same for texts."""

    def __init__(self, db: Any) -> None:
        self._db = db

    @staticmethod
    def spoken(text: str) -> Any:
        """A statement in the driver's form."""
        return text

    def rows(self, text: str, values: Sequence[object] = ()) -> list[Any]:
        """The rows of a statement."""
        found: list[Any] = self._db.execute(self.spoken(text), values).fetchall()
        return found

    def execute(self, text: str, values: Sequence[object] = ()) -> int:
        """How many rows a statement changes."""
        return int(self._db.execute(self.spoken(text), values).rowcount)

    def many(self, text: str, rows: Sequence[Sequence[object]]) -> None:
        """Run a statement for each of these rows of values."""
        if rows:
            self._db.cursor().executemany(self.spoken(text), rows)

    def reserve(self, table: str, column: str, count: int) -> list[int]:
        """So many new row numbers of a table."""
        raise NotImplementedError

    def clock(self) -> float:
        """Seconds that all processes which use the database share, and that nobody sets."""
        raise NotImplementedError

    def insert_words(self, session: int, owner: str, entries: Sequence[Words]) -> int:
        """Store the words of a session's entries in the table `words`, by their numbers; returns how many they are."""
        raise NotImplementedError

    def attempts(self, place: Place, wanted: Sequence[str], ranks: int) -> Iterator[Found]:
        """What matches any of the terms: about as many as are ranked, and then many more."""
        raise NotImplementedError


Result = TypeVar("Result")
TxWork = Callable[[Tx], Result]


class Database(Protocol):
    """An open database, which runs functions on transactions in threads of its own."""

    async def read(self, work: TxWork[Result], /) -> Result:
        """What `work` returns; all its reads see the same state."""

    async def write(self, work: TxWork[Result], /) -> Result:
        """What `work` returns, run as one transaction: committed durably, or rolled back."""

    async def write_together(self, work: TxWork[Result], /) -> Result:
        """The same, perhaps in a transaction with those that wait at the same time; if one fails, the others are
        committed all the same."""

    async def close(self) -> None:
        """Close it, after what runs on it; closing again does nothing."""

    async def forget(
        self, pieces: Callable[[TxWork[bool]], Awaitable[bool]], closing: asyncio.Event, had_words: bool, /
    ) -> bool:
        """Overwrite what removed rows leave in the files, by `pieces` if that takes long, and until it is `closing`;
        False if something of it stays."""


def only(rows: Sequence[Any]) -> Any:
    """The first column of the first row; None without a row."""
    return rows[0][0] if rows else None


def listed(values: Iterable[object]) -> str:
    """The value of `numbers` or `texts`."""
    return json.dumps(list(values))


def now() -> datetime:
    """The current time in UTC."""
    return datetime.now(UTC)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def microseconds(time: datetime) -> int:
    """A time as it is stored; one without a zone is in UTC."""
    since = (time if time.tzinfo is not None else time.replace(tzinfo=UTC)) - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def time_of(stored: int) -> datetime:
    """The time of `microseconds`."""
    return _EPOCH + timedelta(microseconds=stored)


def name_hash(name: str) -> str:
    """The 128 bits by which a name that a client chose is found: it may be text that no database holds."""
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def storable(text: str) -> str:
    """The text without what a database's text can't hold."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode()


def statements() -> list[str]:
    """The statements that make the tables."""
    schema = files("contextstash_storage").joinpath("schema.sql").read_text(encoding="utf-8")
    lines = [line for line in schema.splitlines() if not line.startswith("--")]
    return [each.strip() for each in "\n".join(lines).split(";\n") if each.strip()]


def check_version(version: int) -> None:
    """Raise StoreError if a database with tables is not of this program's version."""
    if version not in (0, VERSION):
        advice = (
            "Upgrade contextstash, or name another database with --db."
            if version > VERSION
            else "Export its sessions with the contextstash that made it (contextstash export), and import them into a"
            " new database."
        )
        known = f"The database is of version {version}, this contextstash reads version {VERSION}."
        raise StoreError(f"{known} {advice}")


@dataclass(frozen=True)
class Address:
    """A database's address. `url` is what the user wrote."""

    url: str = field(repr=False)
    shown: str
    password: str = field(repr=False)

    def __str__(self) -> str:
        return self.shown


def parse_address(text: str) -> Address:
    """Read an address: postgresql://user:password@host:port/database. What it names beside that is the driver's. Raises
    BadInputError."""
    if "://" not in text:
        raise BadInputError("An address of PostgreSQL is postgresql://user@host/database.")
    try:
        parts = urlsplit(text)
        port = f":{parts.port}" if parts.port else ""
    except ValueError as error:
        raise BadInputError(f"--db is not a valid address of PostgreSQL: {error}.") from error
    password = dict(parse_qsl(parts.query)).get("password") or unquote(parts.password or "")
    user = f"{parts.username}@" if parts.username else ""
    shown = f"{parts.scheme}://{user}{parts.hostname or ''}{port}{parts.path}"
    return Address(url=text, shown=shown, password=password)
