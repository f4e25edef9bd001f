"""Batches of messages, made ready for their rows before a transaction begins."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from contextstash_storage.codec.bodies import fingerprint, to_bytes
from contextstash_storage.codec.record_json import compact
from contextstash_storage.codec.segments import Stored
from contextstash_storage.codec.text_references import referring, sources
from contextstash_storage.errors import BadInputError
from contextstash_storage.records import (
    Call,
    Copied,
    Count,
    Counters,
    Cursor,
    DeclaredVersion,
    EditRecord,
    EditsAfter,
    EditsBefore,
    Event,
    Message,
    NewMessage,
    Request,
    SentRequest,
    Session,
)
from contextstash_storage.search.documents import Piece, documents, is_indexed_later, pieces

ASIDE_CHARACTERS = 200_000
"""From this size on a batch is prepared on a thread of its own, so that the writer's thread is free. Preparing
takes about 20 ms for each million characters (2 cores)."""

ASIDE_MESSAGES = 100
"""The same by the number of messages; each takes about 50 µs."""

MESSAGE_SIZE = 200
"""The size of a message without text: 600 of them fill a transaction, which take 60 ms."""

STORED_BYTES = 64
"""Bytes that are stored in the time in which one character is indexed: 8 MB fill a transaction."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A message made ready for its row: what is `stored` of its content, and what is `derived` from it. `pieces` are
    the rows of the search index for its text, None if there is so much that it is indexed later; `may_end` says whether
    a batch may be cut after it: no tool call is separated from its result there, and no reply from the rest of it."""

    message: NewMessage
    stored: Stored
    derived: str
    fingerprint: bytes
    pieces: tuple[Piece, ...] | None
    may_end: bool = True

    @property
    def size(self) -> int:
        """How long storing it takes, in characters of indexed text that take as long: about 0.1 µs each."""
        indexed = sum(len(piece.text) for piece in self.pieces or ())
        return MESSAGE_SIZE + indexed + self.stored.size // STORED_BYTES


def is_large(messages: Sequence[NewMessage]) -> bool:
    """Whether preparing these takes so long that it runs on a thread of its own."""
    size = sum(block.size for message in messages for block in message.blocks)
    return len(messages) > ASIDE_MESSAGES or size > ASIDE_CHARACTERS


def prepare(messages: Sequence[NewMessage]) -> list[Prepared]:
    """Do the work that needs no database. Raises BadInputError if a message cannot be stored."""
    return [_prepared(message, may_end) for message, may_end in zip(messages, _ends(messages), strict=True)]


def _prepared(message: NewMessage, may_end: bool) -> Prepared:
    _check_storable(message.key)
    if message.usage is not None:  # then the reply's id has a column of its own
        _check_storable(message.group)
    body = to_bytes(message.body)
    return Prepared(
        message=message,
        stored=Stored(body, _search_text(message)),
        derived=compact(message),
        fingerprint=stored_fingerprint(fingerprint(message.body, body)),
        pieces=_pieces(message),
        may_end=may_end,
    )


def _search_text(message: NewMessage) -> bytes | None:
    if not message.search_text:
        return None
    in_order = sorted(message.outputs, key=lambda output: output.block)  # as their rows are read
    calls = [(output.tool, output.argument) for output in in_order]
    return referring(message.search_text, sources(message.body, calls))


def _pieces(message: NewMessage) -> tuple[Piece, ...] | None:
    return None if is_indexed_later(message) else tuple(pieces_of(message))


def pieces_of(message: NewMessage) -> list[Piece]:
    """The rows of the search index for a message."""
    calls = {output.block: (output.tool, output.argument) for output in message.outputs}
    text = message.search_text
    return list(pieces(documents(text, message.blocks, calls))) if text else []


def _check_storable(name: str | None) -> None:
    try:
        (name or "").encode()
    except UnicodeEncodeError as error:
        raise BadInputError(f"A name among the arguments cannot be stored: {error}.") from error


def _ends(messages: Sequence[NewMessage]) -> list[bool]:
    """For each message, whether the batch may be cut after it."""
    ends = []
    waiting: set[str] = set()
    for place, message in enumerate(messages):
        for block in message.blocks:
            if block.call_id is not None and block.type == "tool_call":
                waiting.add(block.call_id)
            elif block.call_id is not None and block.type == "tool_result":
                waiting.discard(block.call_id)
        following = messages[place + 1].group if place + 1 < len(messages) else None
        ends.append(not waiting and (message.group is None or message.group != following))
    return ends


def batch_fingerprint(batch: Sequence[Prepared]) -> bytes:
    """What makes two batches the same: the same messages in the same order."""
    return hashlib.sha256(b"".join(prepared.fingerprint for prepared in batch)).digest()


@dataclass(frozen=True, slots=True)
class Batch:
    """One call's messages, and how they are appended."""

    owner: str
    session_id: str
    messages: Sequence[Prepared]
    count: Count
    first_seq: int | None = None
    batch_id: str | None = None
    before: EditsBefore | None = None
    cursor: Cursor | None = None
    edits: EditsAfter | None = None

    @property
    def is_identified(self) -> bool:
        """Whether something identifies the batch, or each of its messages."""
        return self.first_seq is not None or self.batch_id is not None or self.before is not None or self.has_keys

    @property
    def has_keys(self) -> bool:
        return any(prepared.message.key is not None for prepared in self.messages)

    def check_markers(self) -> None:
        """Raise BadInputError if more than one thing identifies the messages."""
        if self.has_keys and (self.first_seq is not None or self.batch_id is not None):
            raise BadInputError("These messages have keys, which identify them: pass neither first_seq nor batch_id.")


def with_counters(session: Session, counters: Counters) -> Session:
    """The session with these counters."""
    return session if counters is session.counters else session.model_copy(update={"counters": counters})


def stored_message(message: NewMessage, session_id: str, seq: int, created: datetime) -> Message:
    """A message as it is read after it was stored, without its body."""
    return Message(
        session_id=session_id,
        seq=seq,
        role=message.role,
        kind=message.kind,
        blocks=message.blocks,
        usage=message.usage,
        group=message.group,
        key=message.key,
        created_at=created,
        agent_visible=message.agent_visible,
        user_visible=message.user_visible,
    )


def reported_call(message: NewMessage, session: Session, reply_start: int, sent: SentRequest | None) -> Call:
    """The model call that a message reports on: of the request `sent`, else of what stood before its reply."""
    assert message.usage is not None
    return Call(
        purpose="agent",
        model=message.model or session.model,
        request_seq=reply_start - 1 if sent is None else sent.messages - 1,
        request_edits=session.counters.edits if sent is None else sent.edits,
        created_at=message.created_at,
        **message.usage.model_dump(),
    )


FINGERPRINT_BYTES = 16
"""Of the 32 that a fingerprint has. Two different messages have the same 16 with a chance of 1 in 10^20 among 10^9."""


def stored_fingerprint(fingerprint: bytes) -> bytes:
    """What is stored of a message's fingerprint."""
    return fingerprint[:FINGERPRINT_BYTES]


ITEMS_AT_ONCE = 200


Row = Prepared | EditRecord | Event | Call | DeclaredVersion | Request


def read_rows(items: Iterator[Copied]) -> deque[Row]:
    """The next items, ready to be stored; none at the end. Nothing of the database is needed or held."""
    rows: deque[Row] = deque()
    characters = 0
    for item in items:
        if isinstance(item, NewMessage):
            rows += prepare([item])
            characters += len(item.search_text)
        else:
            rows.append(item)
        if len(rows) >= ITEMS_AT_ONCE or characters >= CHARACTERS_AT_ONCE:
            break
    return rows


CHARACTERS_AT_ONCE = 500_000
"""Items are read and prepared up to this many at a time, and up to about this much text."""
