"""Messages made ready for their rows before a transaction begins: JSON, hashes, compression, text for the index."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from contextstash_storage.codec.bodies import LARGE_STRING, Parts, fingerprint, folded, packed, packed_text, take_apart
from contextstash_storage.codec.record_json import derived
from contextstash_storage.errors import BadInputError
from contextstash_storage.records import NewMessage
from contextstash_storage.search.documents import Piece, documents, is_indexed_later, pieces

ASIDE_CHARACTERS = 200_000
"""From this size on a batch is prepared on a thread of its own, so that the writer's thread is free. Preparing
takes about 40 ms for each million characters (2 cores, zlib level 6)."""

ASIDE_MESSAGES = 100
"""The same by the number of messages; each takes about 50 µs."""

MESSAGE_SIZE = 200
"""The size of a message without text: 600 of them fill a transaction, which take 60 ms."""

STORED_BYTES = 64
"""Bytes that are stored in the time in which one character is indexed: 8 MB fill a transaction."""


@dataclass(frozen=True, slots=True)
class Columns:
    """What is stored of a message: its body without large strings, these packed, what is derived from it, and its text
    for the index, if it has any."""

    body: bytes
    blobs: tuple[bytes, ...]
    derived: str
    search_text: bytes | None


ColumnsOf = Callable[[NewMessage, Parts, tuple[bytes, ...]], Columns]
"""Makes the columns of a message, given its parts and its packed large strings."""


@dataclass(frozen=True, slots=True)
class Form:
    """In which form a store keeps messages: from how many characters on strings are large, how it packs these, and how
    it makes a message's columns."""

    large_string: int
    packed_text: Callable[[str], bytes]
    columns: ColumnsOf


@dataclass(frozen=True, slots=True)
class Prepared:
    """A message made ready for its row, whose `columns` each store has in its own form. `pieces` are the rows of the
    search index for its text, None if there is so much that it is indexed later; `may_end` says whether a batch may be
    cut after it: no tool call is separated from its result there, and no reply from the rest of it."""

    message: NewMessage
    parts: Parts
    columns: Columns
    fingerprint: bytes
    pieces: tuple[Piece, ...] | None
    may_end: bool = True

    @property
    def size(self) -> int:
        """How long storing it takes, in characters of indexed text that take as long: about 0.1 µs each."""
        indexed = sum(len(piece.text) for piece in self.pieces or ())
        stored = len(self.columns.body) + sum(map(len, self.columns.blobs))
        return MESSAGE_SIZE + indexed + stored // STORED_BYTES


def is_large(messages: Sequence[NewMessage]) -> bool:
    """Whether preparing these takes so long that it runs on a thread of its own."""
    size = sum(block.size for message in messages for block in message.blocks)
    return len(messages) > ASIDE_MESSAGES or size > ASIDE_CHARACTERS


def _plain_columns(message: NewMessage, parts: Parts, blobs: tuple[bytes, ...]) -> Columns:
    text = message.search_text
    return Columns(packed(parts.rest), blobs, derived(message), folded(text, parts.blobs) if text else None)


PLAIN_FORM = Form(LARGE_STRING, packed_text, _plain_columns)
"""Each column can be read on its own; the form of databases before compact_form.py, and of PostgreSQL."""


def prepare(messages: Sequence[NewMessage], form: Form) -> list[Prepared]:
    """Do the work that needs no database. Raises BadInputError or BadMessageError if a message cannot be stored."""
    known: dict[bytes, bytes] = {}
    return [
        _prepared(message, may_end, form, known) for message, may_end in zip(messages, _ends(messages), strict=True)
    ]


def _prepared(message: NewMessage, may_end: bool, form: Form, known: dict[bytes, bytes]) -> Prepared:
    _check_storable(message.key)
    if message.usage is not None:  # then the reply's id has a column of its own
        _check_storable(message.group)
    parts = take_apart(message.body, form.large_string)
    for blob in parts.blobs:
        if blob.sha256 not in known:
            known[blob.sha256] = form.packed_text(blob.text)
    return Prepared(
        message=message,
        parts=parts,
        columns=form.columns(message, parts, tuple(known[blob.sha256] for blob in parts.blobs)),
        fingerprint=fingerprint(message.body, None if parts.blobs else parts.rest),
        pieces=_pieces(message),
        may_end=may_end,
    )


def _pieces(message: NewMessage) -> tuple[Piece, ...] | None:
    text = message.search_text
    if is_indexed_later(message):
        return None
    calls = {output.block: (output.tool, output.argument) for output in message.outputs}
    return tuple(pieces(documents(text, message.blocks, calls))) if text else ()


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
