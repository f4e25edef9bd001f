"""The records that readers make of a client's transcript: sessions, messages, and the client's own window edits."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextstash_storage.records import Native, Usage

_WINDOW_KEY = "window-"


def window_key(text: str) -> str:
    """The key of the message that begins a window which contextstash wrote for a client: both the compaction, when it
    is recorded, and the client's transcript, when it is read, find the same message by it."""
    return f"{_WINDOW_KEY}{hashlib.sha256(text.strip().encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


def is_window_key(key: str | None) -> bool:
    """Whether a message with this key begins a window which contextstash wrote."""
    return key is not None and key.startswith(_WINDOW_KEY)


@dataclass(frozen=True, slots=True)
class TranscriptSession:
    """The session in a transcript. `source` is the file.

    `window`: the tokens of the model's window that the client itself says it uses.
    `late_usage`: the key of a reply that was recorded without its usage, and the usage that was written later.
    `whole`: the messages are the whole conversation, without keys; messages that it no longer holds leave the view.
    """

    session_id: str
    format: str
    agent: str | None = None
    model: str | None = None
    title: str | None = None
    source: str | None = None
    parent_session_id: str | None = None
    window: int | None = None
    late_usage: tuple[str, Usage] | None = None
    whole: bool = False


@dataclass(frozen=True, slots=True)
class TranscriptMessage:
    """One message of a transcript. `key` is the client's own unique id of it.

    `covers_before`: the client compacted, and this message is its summary of everything before. If the client kept
    messages in addition to its summary, `covers_before_key` is the first of them; a key that is not in the store is
    ignored.
    `rewind_to_key`: before this message the client abandoned the messages after the one with that key; all messages
    if the key is empty.
    `cleared_call_ids`: tool calls whose results the client removed from its window before this message.
    `by_host`: the client wrote this message in the user's role; the user did not.
    """

    body: Native
    key: str | None = None
    group: str | None = None
    usage: Usage | None = None
    model: str | None = None
    created_at: datetime | None = None
    covers_before: bool = False
    rewind_to_key: str | None = None
    cleared_call_ids: tuple[str, ...] = ()
    by_host: bool = False
    covers_before_key: str | None = None
