"""The key of an encrypted database, from where the user's setting says: the system's keyring or a file."""

from __future__ import annotations

import os
import re
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from contextstash.configuration.locations import KEY_SETTING, user_config_folder
from contextstash_storage.errors import StoreError

KEYRING_ENTRY = ("contextstash", "database")
"""Service and user name in the keyring."""

KEY_BYTES = 32

MAX_KEY_BYTES = 1_000
"""How much of a file is read; a key has 64 characters."""


def read_key(source: str) -> bytes:
    """The key from its place. Raises StoreError, which names the place and never what was found there."""
    kind, _, place = source.partition(":")
    if kind == "keyring" and not place:
        found = _in_keyring()
        advice = "contextstash encrypt makes one; if the database is encrypted already, bring back that key"
    elif kind == "file" and place:
        found = _in_file(_path(place))
        advice = "put it there"
    else:  # not shown, since it may be a key
        raise StoreError(f"{KEY_SETTING} must be keyring or file:PATH.")
    if found is None or not re.fullmatch(r"[0-9a-fA-F]{64}", found.strip()):
        what = "no key" if not found else "something that is not a key of 64 hexadecimal digits"
        raise StoreError(f"{KEY_SETTING} names {what} ({shown(source)}): {advice}.")
    return bytes.fromhex(found.strip())


def shown(source: str) -> str:
    """The place of a key as it may be printed: not what may be a key itself."""
    is_place = source == "keyring" or source.startswith("file:")
    return source if is_place else "something that is not shown, since it may be a key"


def read_or_make_key(source: str) -> bytes:
    """The key from its place. If a keyring or a file has none yet, a new one is put there first."""
    kind, _, place = source.partition(":")
    if source == "keyring":
        with _alone():
            if _in_keyring() is None:
                _keyring().set_password(*KEYRING_ENTRY, secrets.token_hex(KEY_BYTES))
    elif kind == "file" and not _path(place).exists():
        _make_file(_path(place))
    return read_key(source)


@contextmanager
def _alone() -> Iterator[None]:
    """While no other process of the user makes a key: a second one would take the place of the first, with which a
    database may be encrypted by then. Raises StoreError if one does. Windows has no such lock."""
    if sys.platform == "win32":
        yield
        return
    import fcntl

    folder = user_config_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    opened = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise StoreError(
            "Another process is making the key, and may wait for you. Let it end, and try again."
        ) from error
    finally:
        os.close(opened)


def _path(place: str) -> Path:
    path = Path(place).expanduser()
    if not path.is_absolute():  # hooks and servers run in folders of their own
        raise StoreError(f"{KEY_SETTING} must name a file by its whole path, not {place}.")
    return path


def _make_file(path: Path) -> None:
    """A file with a new key, on the disk before anything is encrypted with it."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(f"{secrets.token_hex(KEY_BYTES)}\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StoreError(f"The key cannot be written to {path}: {error.strerror}.") from error


def _in_file(path: Path) -> str | None:
    from contextstash.base.files import read_regular

    try:
        if sys.platform != "win32" and stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise StoreError(f"Other users may read the key in {path}: chmod 600 {path}")
        return read_regular(path, MAX_KEY_BYTES).decode("ascii", "replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"The key in {path} cannot be read: {error.strerror}.") from error


def _in_keyring() -> str | None:
    keyring = _keyring()
    try:
        found: str | None = keyring.get_password(*KEYRING_ENTRY)
    except keyring.errors.KeyringError as error:
        raise StoreError(
            f"The keyring cannot be read ({type(error).__name__}). Unlock it; without one, as on a server, set"
            f" {KEY_SETTING} to file:PATH."
        ) from error
    return found


def _keyring() -> Any:
    """The package, which takes 0.1 s to import."""
    try:
        import keyring
        import keyring.errors
    except ImportError as error:
        raise StoreError(
            "A key in the keyring needs the package keyring: pip install keyring, pipx inject contextstash keyring, or"
            " uv tool install --with keyring contextstash, as contextstash was installed. Or pass file:PATH."
        ) from error
    return keyring
