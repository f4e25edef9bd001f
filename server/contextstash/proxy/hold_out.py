"""The hold-out: sessions that go through the proxy unedited, so that the cost of the others can be compared."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from pathlib import Path

from contextstash.files.atomic_file import replace_file

KEY_FILE = "hold-out.key"
KEY_BYTES = 32


def is_held_out(name: str, share: float, key: bytes) -> bool:
    """Whether a session of this name belongs to the hold-out. The keyed hash decides, so that the choice depends on
    nothing that a session holds, is the same again after a restart, and differs between two installations."""
    digest = hmac.digest(key, name.encode("utf-8", "surrogatepass"), hashlib.sha256)
    return int.from_bytes(digest[:8]) < share * 2**64


def hold_out_key(folder: Path) -> bytes:
    """The key of this installation, made when it is first needed. Raises OSError."""
    path = folder / KEY_FILE
    if not path.exists():
        replace_file(path, secrets.token_bytes(KEY_BYTES))
    return path.read_bytes()
