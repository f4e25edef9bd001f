"""What is read out of a client's transcript: sessions and messages, with what the client did to its own window."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from contextstash_storage.records import Native, Usage


@dataclass(frozen=True, slots=True)
class TranscriptSession:
    """The session that a transcript holds. `source` is the file.

    `late_usage`: the key of a reply that was recorded without its usage, and that usage, which came later.
    `whole`: the messages are the whole conversation, without keys; what it does not hold any more leaves the view.
    """

    session_id: str
    format: str
    agent: str | None = None
    model: str | None = None
    title: str | None = None
    source: str | None = None
    parent_session_id: str | None = None
    late_usage: tuple[str, Usage] | None = None
    whole: bool = False


@dataclass(frozen=True, slots=True)
class TranscriptMessage:
    """One message of a transcript. `key` is the client's own unique id of it.

    `covers_before`: the client compacted, and this message is its summary of everything before. Where the client kept
    messages beside its summary, `covers_before_key` names the first of those that come after it, and
    `covers_after_key` the last of those that come before it; a key that isn't known says nothing.
    `rewind_to_key`: the messages after the one with that key were abandoned before this one came; all were
    if it is empty.
    `cleared_call_ids`: tool calls whose results the client dropped from its window before this message.
    `by_host`: the client put this into the user's role; no person said it.
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
    covers_after_key: str | None = None
