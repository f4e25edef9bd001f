"""The hold-out: sessions that go through the proxy unedited, so that the cost of the others can be compared."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable
from pathlib import Path

from contextstash.files.atomic_file import replace_file
from contextstash.proxy.conversations import Conversation

KEY_FILE = "hold-out.key"
KEY_BYTES = 32


def is_held_out(name: str, share: float, key: bytes) -> bool:
    """Whether a session of this name belongs to the hold-out. The keyed hash decides, so that the choice depends on
    nothing that a session holds, is the same again after a restart, and differs between two installations."""
    digest = hmac.digest(key, name.encode("utf-8", "surrogatepass"), hashlib.sha256)
    return int.from_bytes(digest[:8]) < share * 2**64


def held_out(conversation: Conversation, share: float, key: Callable[[], bytes]) -> bool:
    """Whether nothing is edited so that the costs can be compared: decided once, at the start of a session. A
    sub-agent goes with the conversation that started it."""
    state = conversation.state
    if share and state.held_out is None and not state.requests:
        chosen = is_held_out(conversation.parent or conversation.session_id, share, key())
        conversation.state = state.model_copy(update={"held_out": chosen})
    return bool(conversation.state.held_out)


def hold_out_key(folder: Path) -> bytes:
    """The key of this installation, made when it is first needed. Raises OSError."""
    path = folder / KEY_FILE
    if not path.exists():
        replace_file(path, secrets.token_bytes(KEY_BYTES))
    return path.read_bytes()
