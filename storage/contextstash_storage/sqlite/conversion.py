"""Encrypts and decrypts a database file: a whole new one takes the place of the old one, which is overwritten."""

from __future__ import annotations

import os
import secrets
import sqlite3
from contextlib import closing, suppress
from itertools import zip_longest
from pathlib import Path

from contextstash_storage.errors import StoreBusyError, StoreError
from contextstash_storage.sqlite.database_file import (
    UNFINISHED,
    DriverError,
    FindKey,
    connection,
    is_encrypted,
    key_literal,
    open_file,
    overwrite,
    primary_code,
    remove,
    remove_unfinished,
    store_error,
)

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

    Raises StoreBusyError if another process has the file open, StoreError if the file cannot be read or written, or has
    a second name, under which it would be overwritten too.
    """
    path = path.resolve()
    try:
        with closing(_locked(path, lambda: key)) as db:
            remove_unfinished(path)
            if is_encrypted(db) == encrypt:
                return False
            if path.stat().st_nlink > 1:
                raise StoreError(
                    f"{path} has a second name (a hard link, as in backups by cp -al), and what stands there would be"
                    " overwritten. Nothing was changed: delete the link, or make it a copy of its own (cp)."
                )
            old = os.open(path, os.O_RDWR | getattr(os, "O_BINARY", 0))
            try:
                _replace(db, path, key if encrypt else b"", old)
            finally:
                db.close()  # before `old`, the end of which takes away the lock
                os.close(old)
    except DriverError as error:
        busy = primary_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
        raise (StoreBusyError(IN_USE) if busy else store_error(error)) from error
    except OSError as error:
        raise StoreError(f"The database could not be converted and is as it was: {error}.") from error
    return True


def _locked(path: Path, find_key: FindKey) -> sqlite3.Connection:
    """A connection that has the file for itself, with all of the log in the file. Opened by SQLCipher, plain or not."""

    def lock(db: sqlite3.Connection) -> None:
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        db.execute("PRAGMA journal_mode = DELETE")  # refused while another connection is open
        db.execute("BEGIN EXCLUSIVE")
        db.execute("COMMIT")  # in this mode the lock stays

    return open_file(path, find_key, lock, isolation_level=None, timeout=WAIT_SECONDS)


def _replace(db: sqlite3.Connection, path: Path, key: bytes, opened: int) -> None:
    """Put a new file, with all of the database, in the place of the old one, which has to be locked and is `opened`.
    Then overwrite the old one. It has a second name until then, by which it is found if this process is killed."""
    new, old = (path.with_name(f"{path.name}.{secrets.token_hex(4)}{UNFINISHED}") for _ in range(2))
    try:
        _write(db, new, key)
        with suppress(OSError):  # a disk whose files have one name each
            os.link(path, old)
        new.replace(path)
    except BaseException:
        remove(new)
        old.unlink(missing_ok=True)
        raise
    with suppress(OSError):  # it is converted; what is left of the old file has its second name still
        _sync(path.parent)
        overwrite(opened)
        old.unlink(missing_ok=True)


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
        if check != "ok" or not _is_copy(written, db):
            raise StoreError(f"The database is as it was: the new file differs from it ({check}). Is the disk full?")
    _sync(new)


def _is_copy(new: sqlite3.Connection, old: sqlite3.Connection) -> bool:
    """Whether two databases have the same rows; those of the search index are in tables of their own."""
    tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage AND name NOT LIKE 'sqlite_%' ORDER BY 1"
    names = old.execute(tables).fetchall()
    if new.execute(tables).fetchall() != names:
        return False
    of_table = (tuple(db.execute(f'SELECT * FROM "{name}"') for db in (new, old)) for (name,) in names)
    return all(one == other for pair in of_table for one, other in zip_longest(*pair))


def _sync(path: Path) -> None:
    """Make a file, or the names in a folder, durable."""
    if path.is_dir() and os.name == "nt":
        return
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
