"""Database files: opened, encrypted ones with the user's key, and encrypted or decrypted. Every connection is made
here, by the SQLite that sqlcipher3 brings: on every machine the same, and new enough for an index that deletes by row
number (3.43)."""

from __future__ import annotations

import os
import re
import secrets
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

from sqlcipher3 import dbapi2

from contextstash_storage.errors import StoreBusyError, StoreError
from contextstash_storage.transaction import check_version

MARK = b"contextstash\0enc"
"""The first 16 bytes of an encrypted file, which SQLCipher takes as the salt of the key. A salt protects passwords from
tables made in advance; the key is 256 random bits, so the salt may be known, and an encrypted file is recognized
without its key."""

FindKey = Callable[[], bytes | None]
"""Returns the user's key, None if the user has none. It may read a file."""


def read_version(db: sqlite3.Connection) -> int:
    """The version of a database, 0 if it has no tables."""
    [version] = db.execute("PRAGMA user_version").fetchone()
    return int(version)


OWN_TABLES = {"sessions", "outputs"}
"""Those by which a database of contextstash is known."""


def check_is_ours(path: Path, db: sqlite3.Connection) -> None:
    """Raise StoreError if a database that is not new is of another version, or of another program. Reads the
    file, after which a connection with a write-ahead log keeps others from having it alone."""
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_schema")}
    version = read_version(db)  # after the tables: another process may be making both
    if tables and not (version and tables >= OWN_TABLES):
        raise StoreError(
            f"The database {path} is of another program, and was left unchanged. Name another file with --db: a new one"
            " is made there."
        )
    check_version(version)


def make_file(path: Path) -> None:
    """Make the file and its folder, if they are missing, for this user alone. Raises StoreError if it cannot."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600, exist_ok=True)
    except OSError as error:
        raise StoreError(f"The database {path} cannot be opened: {error.strerror}. Name another with --db.") from error


def open_file(
    path: Path,
    find_key: FindKey = lambda: None,
    prepare: Callable[[sqlite3.Connection], None] = lambda _: None,
    **options: Any,
) -> sqlite3.Connection:
    """A connection to a file that is ours, on which `prepare` has run. A new file is encrypted if there is a key. With
    `read_only` the file must exist. Raises what the drivers raise, and StoreError if it is not ours, or the key does
    not fit."""
    key = find_key()
    while True:
        number, changed = _state(path)
        try:
            db = _opened(path, key, prepare, **options)
        except (DriverError, StoreError):
            if _state(path) == (number, changed):
                raise
            continue
        if _state(path)[0] == number:
            return db
        # While this waited for the lock, `encrypt` or `decrypt` put another file there: what is written to this one
        # would be lost.
        db.close()


def _state(path: Path) -> tuple[int, int]:
    """The number of a file, and when it was changed: a number is given again after a file is deleted."""
    with suppress(OSError):
        found = path.stat()
        return found.st_ino, found.st_ctime_ns
    return 0, 0


def _opened(
    path: Path, key: bytes | None, prepare: Callable[[sqlite3.Connection], None], **options: Any
) -> sqlite3.Connection:
    for attempt in (None,) if key is None else (key, b""):
        db = connection(path, attempt, **options)
        try:
            check_is_ours(path, db)
            prepare(db)
            return db
        except BaseException as error:
            db.close()
            if not isinstance(error, DriverError) or primary_code(error) != sqlite3.SQLITE_NOTADB:
                raise
    if not begins_encrypted(path):
        raise StoreError(DAMAGED.format(f"database file {path}"))
    if key is not None:
        raise StoreError(
            f"The database {path} was encrypted with another key than the one that the setting encryption_key names, or"
            " is damaged. Let encryption_key name the key with which it was encrypted, or name another with --db."
        )
    raise StoreError(
        f"The database {path} is encrypted, and no setting says where its key is. Set it as it was when the database"
        " was encrypted: contextstash config set encryption_key=file:PATH."
    )


DAMAGED = "The {} is damaged or is no SQLite database. Put it aside and restore a backup, or name another with --db."


def connection(path: Path, key: bytes | None, *, read_only: bool = False, **options: Any) -> sqlite3.Connection:
    """A connection to a file encrypted with this key, or to a plain one. Nothing is read yet, so a wrong key is noticed
    later."""
    place = f"file:{quote(str(path.absolute()))}?mode=ro" if read_only else path
    db = cast(sqlite3.Connection, dbapi2.connect(place, uri=read_only, **options))
    db.execute("PRAGMA cipher_log_level = NONE")  # it would write to standard error
    if key:
        db.execute(f'PRAGMA key = "{key_literal(key)}"')
        if not is_encrypted(db):  # nothing else would say so
            db.close()
            raise StoreError("The database cannot be encrypted: the installed sqlcipher3 does not take the key.")
    return db


def is_encrypted(db: sqlite3.Connection) -> bool:
    """Whether a connection reads an encrypted file."""
    return [str(value) for (value,) in db.execute("PRAGMA cipher_status")] == ["1"]


def key_literal(key: bytes) -> str:
    """A key in the form from which SQLCipher derives no other: its 256,000 rounds of PBKDF2 would take 0.1 s."""
    return f"x'{key.hex()}{MARK.hex()}'"


DriverError = cast(type[sqlite3.Error], dbapi2.Error)
"""What the driver raises: an exception of its own, of the same fields as that of Python's sqlite3."""


def primary_code(error: sqlite3.Error) -> int:
    """The kind of an error: SQLITE_BUSY and so on."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def begins_encrypted(path: Path) -> bool:
    """Whether a file begins as one that is encrypted here. Only for files that this process does not have open:
    closing another descriptor of a file takes away SQLite's locks on it."""
    with suppress(OSError), path.open("rb") as file:
        return file.read(len(MARK)) == MARK
    return False


UNFINISHED = ".converting"
"""How the name of a file ends that becomes the database once it is whole, and that of the old one from then on."""


def remove_unfinished(path: Path) -> None:
    """Remove what killed processes left of conversions of a database that is open here, so that none is going on."""
    path = path.resolve()
    own = re.compile(re.escape(path.name) + r"\.[0-9a-f]{8}" + re.escape(UNFINISHED))  # and not those of NAME.bak
    for file in path.parent.iterdir():
        if own.fullmatch(file.name):
            remove(file)


def remove(file: Path) -> None:
    """Remove a file, if it is there, and fill it with zeros before, so that what was in it is not in the free blocks of
    the disk. One that has another name too loses only this one: it may be the open database, whose locks this process
    would lose with the first descriptor that it closes."""
    with suppress(OSError):
        if file.lstat().st_nlink == 1:
            opened = os.open(file, os.O_RDWR | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0))
            try:
                size, at_once = os.fstat(opened).st_size, 1 << 20
                for start in range(0, size, at_once):
                    os.write(opened, bytes(min(at_once, size - start)))
                os.fsync(opened)
            finally:
                os.close(opened)
        file.unlink(missing_ok=True)


def store_error(error: sqlite3.Error | UnicodeDecodeError) -> StoreError:
    """The StoreError for a driver's error, which says what it means and what to do. The driver cannot say in words what
    is wrong with a damaged schema, if its bytes are not text."""
    code = sqlite3.SQLITE_CORRUPT if isinstance(error, UnicodeDecodeError) else primary_code(error)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreBusyError(
            "The database is locked by another process for too long; nothing was written. Try again in a moment."
        )
    if code == sqlite3.SQLITE_FULL:
        return StoreError("The disk is full; nothing was written. Make room and try again.")
    if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
        return StoreError(DAMAGED.format("database file"))
    advice = "See to its folder, its disk and their permissions, or name another with --db."
    return StoreError(f"The database could not do that: {error}. {advice}")


WAIT_SECONDS = 5.0
"""How long to wait for other processes that have the file open: a hook is done by then."""

IN_USE = (
    "The database is open in another process, and nothing was changed. End the clients, servers and proxies that use"
    " it, and try again."
)


def convert(path: Path, key: bytes, *, encrypt: bool) -> bool:
    """Encrypt a file, or decrypt it; False if that is how it is. A process that is killed leaves it as it was, or
    converted; the file that it leaves over, a new or the old one, is overwritten and removed by the next opening of the
    database.

    Raises StoreBusyError if another process has the file open, StoreError if the file cannot be read or written."""
    path = path.resolve()
    make_file(path)
    new, old = (path.with_name(f"{path.name}.{secrets.token_hex(4)}{UNFINISHED}") for _ in range(2))

    def lock(db: sqlite3.Connection) -> None:
        """Have the file for this connection alone, with all of the log in the file."""
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        db.execute("PRAGMA journal_mode = DELETE")  # refused while another connection is open
        db.execute("BEGIN EXCLUSIVE")
        db.execute("COMMIT")  # in this mode the lock stays

    try:
        with closing(open_file(path, lambda: key, lock, isolation_level=None, timeout=WAIT_SECONDS)) as db:
            remove_unfinished(path)
            if is_encrypted(db) == encrypt:
                return False
            try:
                _write(db, new, key if encrypt else b"")
                os.link(path, old)  # by this name it is found if this process is killed before it is overwritten
                new.replace(path)
            except BaseException:
                remove(new)
                old.unlink(missing_ok=True)
                raise
            with suppress(OSError):  # it is converted; what is left of the old file has its second name still
                _sync(path.parent)
                remove(old)
    except DriverError as error:
        busy = primary_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
        raise (StoreBusyError(IN_USE) if busy else store_error(error)) from error
    except OSError as error:
        raise StoreError(
            f"The database could not be converted and is as it was: {error}. Its disk must have room for a copy, and"
            " hard links."
        ) from error
    return True


def _write(db: sqlite3.Connection, new: Path, key: bytes) -> None:
    """Write all of a database to a new file, durably, and check that all of it is there."""
    new.touch(mode=0o600, exist_ok=False)
    db.execute("ATTACH ? AS target KEY ?", (str(new), key_literal(key) if key else ""))
    # It becomes durable at the end, as a whole; a journal would hold what is to be encrypted.
    db.execute("PRAGMA target.journal_mode = OFF")
    db.execute("PRAGMA target.synchronous = OFF")
    db.execute("SELECT sqlcipher_export('target')")
    [version] = db.execute("PRAGMA user_version").fetchone()
    db.execute(f"PRAGMA target.user_version = {int(version)}")
    db.execute("DETACH target")
    with closing(connection(new, key)) as written:
        [check] = written.execute("PRAGMA quick_check(1)").fetchone()
        # The rows of the search index are in tables of their own.
        named = "FROM sqlite_schema WHERE type = 'table' AND rootpage AND name NOT LIKE 'sqlite_%' ORDER BY 1"
        reads = [f"SELECT name {named}", *(f'SELECT * FROM "{name}"' for (name,) in db.execute(f"SELECT name {named}"))]
        rows = (zip_longest(db.execute(read), written.execute(read)) for read in reads)
        if check != "ok" or not all(one == other for pairs in rows for one, other in pairs):
            raise StoreError(f"The database is as it was: the new file differs from it ({check}). Is the disk full?")
    _sync(new)


def _sync(path: Path) -> None:
    """Make a file, or the names in a folder, durable."""
    if path.is_dir() and os.name == "nt":
        return
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
