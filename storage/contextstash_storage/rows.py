"""Records as the JSON of their rows, and back; of what is derived from a message, a list without field names. Pure."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TypeVar
from zlib import crc32

import pydantic_core
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from contextstash_storage.errors import DamagedError
from contextstash_storage.records import (
    EDIT,
    Block,
    BlockType,
    Call,
    Edit,
    Kind,
    Native,
    NewMessage,
    Record,
    Role,
)
from contextstash_storage.transaction import microseconds, time_of

if sys.version_info >= (3, 14):
    from compression import zstd as zstd
else:
    from backports import zstd as zstd


_JSON = json.JSONDecoder()
"""Decodes what this program wrote: without looking for the encoding and for white space it takes 60 % of the time."""


def to_bytes(value: object) -> bytes:
    """Compact JSON in UTF-8; lone surrogates, which UTF-8 can't hold, are escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def body_of(stored: bytes) -> Native:
    """The body of `to_bytes`."""
    body: Native = _JSON.raw_decode(stored.decode())[0]
    return body


_LEVEL, _CHECKSUM = zstd.CompressionParameter.compression_level, zstd.CompressionParameter.checksum_flag


_COMPRESSOR = zstd.ZstdCompressor(options={_LEVEL: 8, _CHECKSUM: 1})
"""A full segment takes 0.7 ms; with level 5 it takes 0.4 and is 4 % larger, with 12 it takes 2.9 and is 1 % smaller.
Used for each frame again, which takes a sixth of the time of making one for each; it locks itself."""


_FRAME = b"\x28\xb5\x2f\xfd"
"""How a frame begins; no JSON does."""


def compressed(data: bytes) -> bytes:
    """The data as one frame with a checksum."""
    return _COMPRESSOR.compress(data, zstd.ZstdCompressor.FLUSH_FRAME)


def plain(stored: bytes) -> bytes:
    """The JSON of `compressed`, or JSON that is not compressed."""
    return zstd.decompress(stored) if stored.startswith(_FRAME) else stored


def damaged(what: str) -> DamagedError:
    """The error for a stored value that is not what was stored."""
    return DamagedError(
        f"The database is damaged: {what} cannot be read. Everything else can; contextstash doctor says what is"
        " damaged. Restore a backup, or delete the session."
    )


# The places in these are stored: what comes later is added at their end.
ROLES: tuple[Role, ...] = ("system", "user", "assistant", "tool")
KINDS: tuple[Kind, ...] = ("message", "host", "tool_result", "tool_result_archived", "tool_summary", "summary")
TYPES: tuple[BlockType, ...] = ("text", "thinking", "tool_call", "tool_result", "image", "document", "opaque")
_BLOCK = ("type", "tokens", "size", "call_id", "tool", "argument", "is_error")
_USAGE = (
    "prompt_tokens", "completion_tokens", "reasoning_tokens", "cached_tokens", "cache_write_tokens",
    "cache_write_1h_tokens",
)  # fmt: skip

_MAX_KINDS = 16
"""By what the place of the role is multiplied in the number of a role and kind."""


def facts_of(message: NewMessage) -> str:
    """What is derived from a message: [role and kind, blocks, usage, group, hidden from agent]."""
    place = ROLES.index(message.role) * _MAX_KINDS + KINDS.index(message.kind)
    blocks = [_listed(each, _BLOCK, TYPES.index(each.type)) for each in message.blocks]
    usage = None if message.usage is None else _listed(message.usage, _USAGE)
    return to_bytes(_trimmed([place, blocks, usage, message.group, not message.agent_visible])).decode()


def _listed(record: Record, names: Sequence[str], *first: int) -> list[Any]:
    """The values of these fields, the first of which may be given in another form."""
    return _trimmed([*first, *(getattr(record, name) for name in names[len(first) :])])


def _trimmed(values: list[Any]) -> list[Any]:
    """The list without the absent values, zeros and falsehoods at its end; its first value is kept."""
    while len(values) > 1 and not values[-1] and values[-1] != "":
        values.pop()
    return values


def _filled(values: Sequence[Any]) -> list[Any]:
    """The values of `facts_of` but the first, with those that were left out at their end."""
    return [*values, *((), None, None, False)[len(values) :]]


def fields_of(facts: str) -> dict[str, Any]:
    """The fields of a message that are derived, by name. A view makes those of thousands of messages."""
    place, *values = parsed(facts)
    role, kind = divmod(place, _MAX_KINDS)
    fields: dict[str, Any] = {"role": ROLES[role], "kind": KINDS[kind], "blocks": (blocks := [])}
    for row in values[0] if values else ():
        row[0] = TYPES[row[0]]
        blocks.append(dict(zip(_BLOCK, row, strict=False)))
    if len(values) > 1:
        _, usage, group, hidden = _filled(values)
        fields |= {"group": group, "agent_visible": not hidden}
        fields["usage"] = None if usage is None else dict(zip(_USAGE, usage, strict=False))
    return fields


def blocks_of(facts: str) -> tuple[Block, ...]:
    """The blocks of a message, by what is derived from it."""
    return tuple(Block.model_validate(block) for block in fields_of(facts)["blocks"])


def parsed(text: str) -> Any:
    """JSON, read by pydantic's parser, which takes less than half of the time of Python's."""
    try:
        return pydantic_core.from_json(text)
    except ValueError:  # escaped lone surrogates
        return json.loads(text)


def group_of(facts: str) -> str | None:
    """The id of the reply that a message is a part of."""
    group: str | None = _filled(parsed(facts)[1:])[2]
    return group


StoredRecord = TypeVar("StoredRecord", bound=Record)


def to_json(record: Record) -> str:
    """A record's fields as JSON, without absent and default values."""
    try:
        return record.model_dump_json(exclude_defaults=True)
    except PydanticSerializationError:  # lone surrogates, which UTF-8 can't hold: escape them
        return json.dumps(record.model_dump(mode="json", exclude_defaults=True))


def from_json(kind: type[StoredRecord], text: str) -> StoredRecord:
    """The record of `to_json`. Raises DamagedError if the text is that of none."""
    try:
        return kind.model_validate_json(text)
    except ValidationError:  # escaped lone surrogates
        with suppress(ValueError):
            return kind.model_validate(json.loads(text))
        raise damaged(f"a record of the kind {kind.__name__}") from None


def call_json(call: Call) -> str:
    """A model call as a list of the fields that each has (of its usage, without the zeros at the end), and the others.
    A session has one for each reply: with field names they would take a twentieth of its file."""
    fields = call.model_dump(mode="json", exclude_defaults=True)
    usage = _trimmed([fields.pop(name, 0) for name in _USAGE])
    created = None if call.created_at is None else microseconds(call.created_at)
    fields.pop("created_at", None)
    return to_bytes([fields.pop("request_seq"), fields.pop("request_edits", 0), usage, created, fields]).decode()


def call_fields(stored: str) -> dict[str, Any]:
    """The fields of `call_json`."""
    seq, edits, usage, created, others = parsed(stored)
    time = None if created is None else time_of(created)
    used = dict(zip(_USAGE, usage, strict=False))
    return {"request_seq": seq, "request_edits": edits, "created_at": time, **used, **others}


def edit_of(text: str) -> Edit:
    """The edit of `to_json`, of any kind."""
    try:
        return EDIT.validate_json(text)
    except ValidationError:  # escaped lone surrogates
        return EDIT.validate_python(json.loads(text))


def checksum(*values: object) -> int:
    """Of a row's values: a damaged row is not read as another one."""
    parts = [each if isinstance(each, bytes) else str(each).encode("utf-8", "surrogatepass") for each in values]
    return crc32(b" ".join(parts))
