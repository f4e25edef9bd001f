"""The key of an encrypted database, from the file that the user's setting names."""

from __future__ import annotations

import os
import re
import secrets
import stat
import sys
from pathlib import Path

from contextstash.base.files import PRIVATE, read_regular
from contextstash.configuration.locations import KEY_SETTING
from contextstash_storage.errors import StoreError

KEY_BYTES = 32

MAX_KEY_BYTES = 1_000
"""How much of a file is read; a key has 64 characters."""


def read_key(source: str) -> bytes:
    """The key from its place. Raises StoreError, which names the place and never what was found there."""
    path = _path(source)
    try:
        if sys.platform != "win32" and stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise StoreError(f"Other users may read the key in {path}: chmod 600 {path}")
        found = read_regular(path, MAX_KEY_BYTES).decode("ascii", "replace").strip()
    except FileNotFoundError:
        found = ""
    except OSError as error:
        raise StoreError(f"The key in {path} cannot be read: {error.strerror}.") from error
    if not re.fullmatch(r"[0-9a-fA-F]{64}", found):
        what = "something that is not a key of 64 hexadecimal digits" if found else "no key"
        raise StoreError(f"{KEY_SETTING} names {what} ({source}): put it there.")
    return bytes.fromhex(found)


def shown(source: str) -> str:
    """The place of a key as it may be printed: not what may be a key itself."""
    return source if source.startswith("file:") else "something that is not shown, since it may be a key"


def read_or_make_key(source: str) -> bytes:
    """The key from its place. If there is no such file, one with a new key is made first, on the disk before anything
    is encrypted with it."""
    path = _path(source)
    if not path.exists():
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE), "w") as file:
                file.write(f"{secrets.token_hex(KEY_BYTES)}\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StoreError(f"The key cannot be written to {path}: {error.strerror}.") from error
    return read_key(source)


def _path(source: str) -> Path:
    kind, _, place = source.partition(":")
    if kind != "file" or not place:  # not shown, since it may be a key
        raise StoreError(f"{KEY_SETTING} must be file:PATH.")
    path = Path(place).expanduser()
    if not path.is_absolute():  # hooks and servers run in folders of their own
        raise StoreError(f"{KEY_SETTING} must name a file by its whole path, not {place}.")
    return path
