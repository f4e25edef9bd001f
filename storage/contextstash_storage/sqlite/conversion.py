"""Encrypts and decrypts a database file in its place: a new file is written, and takes the old one's name."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from contextstash_storage.errors import StoreBusyError, StoreError
from contextstash_storage.sqlite.connection import store_error
from contextstash_storage.sqlite.database_file import (
    FindKey,
    connection,
    driver_errors,
    is_encrypted,
    key_literal,
    open_file,
    primary_code,
)

WAIT_SECONDS = 5.0
"""How long to wait for other processes that have the file open: a hook is done by then."""

OVERWRITTEN_BYTES = 1 << 20
"""How much is overwritten at a time."""

PLAIN_BEGIN = b"SQLite format 3\0"

IN_USE = (
    "The database is open in another process, and nothing was changed. End the clients, servers and proxies that use"
    " it, and try again."
)


def convert(path: Path, key: bytes, *, encrypt: bool) -> bool:
    """Encrypt a file, or decrypt it; False if that is how it is. A process that is killed leaves it as it was, or
    converted; the part of a new file that it may leave, which can be read if it decrypts, is removed by the next one.

    Raises StoreBusyError if another process has the file open, StoreError if the file cannot be read or written, or has
    a second name, under which it would be overwritten too.
    """
    try:
        with closing(_locked(path, lambda: key)) as db:
            _new_file(path).unlink(missing_ok=True)
            if is_encrypted(db) == encrypt:
                return False
            if path.stat().st_nlink > 1:
                raise StoreError(
                    f"{path} has a second name (a hard link, as in backups by cp -al), and what stands there would be"
                    " overwritten. Nothing was changed: delete the link, or make it a copy of its own (cp)."
                )
            old = os.open(path, os.O_RDWR | getattr(os, "O_BINARY", 0))
            try:
                _replace(db, path, key if encrypt else b"")
                _overwrite(old)
            finally:
                db.close()  # before `old`, the end of which takes away the lock
                os.close(old)
    except driver_errors() as error:
        busy = primary_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
        raise (StoreBusyError(IN_USE) if busy else store_error(error)) from error
    except OSError as error:
        raise StoreError(f"The database could not be converted and is as it was: {error}.") from error
    return True


def readable_files(folder: Path) -> list[Path]:
    """The files in a folder that are plain SQLite databases, such as backups. None may be open in this process."""
    found = []
    for path in folder.iterdir():
        with suppress(OSError):
            if path.is_file():
                with path.open("rb") as file:
                    found += [path] * (file.read(len(PLAIN_BEGIN)) == PLAIN_BEGIN)
    return sorted(found)


def _locked(path: Path, find_key: FindKey) -> sqlite3.Connection:
    """A connection that has the file for itself, with all of the log in the file. Opened by SQLCipher, plain or not."""

    def lock(db: sqlite3.Connection) -> None:
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        db.execute("PRAGMA journal_mode = DELETE")  # refused while another connection is open
        db.execute("BEGIN EXCLUSIVE")
        db.execute("COMMIT")  # in this mode the lock stays

    with _overwritten(path.with_name(f"{path.name}-wal")):
        return open_file(path, find_key, lock, isolation_level=None, timeout=WAIT_SECONDS)


@contextmanager
def _overwritten(log: Path) -> Iterator[None]:
    """Overwrite a file that is deleted meanwhile. Windows deletes no file that is open: there it is not overwritten."""
    file = os.open(log, os.O_RDWR) if os.name != "nt" and log.exists() else None
    try:
        yield
        if file is not None and os.fstat(file).st_nlink == 0:
            _overwrite(file)
    finally:
        if file is not None:
            os.close(file)


def _new_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.converting")


def _replace(db: sqlite3.Connection, path: Path, key: bytes) -> None:
    """Put a new file, with all of the database, in the place of the old one, which has to be locked."""
    new = _new_file(path)
    try:
        _write(db, new, key)
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    _sync(path.parent)


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
        if check != "ok" or _rows(written) != _rows(db):
            raise StoreError(f"The database is as it was: the new file differs from it ({check}). Is the disk full?")
    _sync(new)


def _rows(db: sqlite3.Connection) -> dict[str, int]:
    """How many rows each table has; those of the search index are among its parts."""
    names = db.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage AND name NOT LIKE 'sqlite_%'"
    ).fetchall()
    return {name: int(db.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]) for (name,) in names}


def _overwrite(file: int) -> None:
    """Fill a file with zeros, so that what was in it is not in the free blocks of the disk."""
    size = os.lseek(file, 0, os.SEEK_END)
    os.lseek(file, 0, os.SEEK_SET)
    for start in range(0, size, OVERWRITTEN_BYTES):
        os.write(file, bytes(min(OVERWRITTEN_BYTES, size - start)))
    os.fsync(file)


def _sync(path: Path) -> None:
    """Make a file, or the names in a folder, durable."""
    if path.is_dir() and os.name == "nt":
        return
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
