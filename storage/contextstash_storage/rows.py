"""Records as the JSON of their rows, and back. Pure."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence, Set
from contextlib import suppress
from typing import Any, TypeVar
from zlib import crc32

import pydantic_core
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from contextstash_storage.errors import DamagedError
from contextstash_storage.records import EDIT, Edit, MessageFacts, Native, Record

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


_TAB = b"\t"
"""Between the body and the texts of a message: no JSON of this program has one, nor a line break."""


def stored_content(body: bytes, texts: Sequence[tuple[int, str]]) -> bytes:
    """What is stored of a message's content: the JSON of its body and of what search finds in it, each text after the
    number of its block. Most of such a text is in the body too, and takes hardly any room when both are compressed."""
    return body + _TAB + to_bytes(texts) if texts else body


def body_of(stored: bytes) -> Native:
    """The body in `stored_content`."""
    body: Native = _JSON.raw_decode(stored.partition(_TAB)[0].decode())[0]
    return body


def texts_of(stored: bytes) -> list[tuple[int, str]]:
    """The texts in `stored_content`."""
    texts = stored.partition(_TAB)[2]
    return [(block, text) for block, text in json.loads(texts)] if texts else []


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


FACTS = frozenset(MessageFacts.model_fields)


def parsed(text: str | bytes) -> Any:
    """JSON, read by pydantic's parser, which takes less than half of the time of Python's."""
    try:
        return pydantic_core.from_json(text)
    except ValueError:  # escaped lone surrogates
        return json.loads(text)


StoredRecord = TypeVar("StoredRecord", bound=Record)


def to_json(record: Record, only: Set[str] | None = None) -> str:
    """A record's fields, or `only` these, as JSON, without absent and default values."""
    fields = None if only is None else set(only)
    try:
        return record.model_dump_json(exclude_defaults=True, by_alias=True, include=fields)
    except PydanticSerializationError:  # lone surrogates, which UTF-8 can't hold: escape them
        return to_bytes(record.model_dump(mode="json", exclude_defaults=True, by_alias=True, include=fields)).decode()


def from_json(kind: type[StoredRecord], text: str | bytes) -> StoredRecord:
    """The record of `to_json`. Raises DamagedError if the text is that of none."""
    try:
        return kind.model_validate_json(text)
    except ValidationError:  # escaped lone surrogates
        with suppress(ValueError):
            return kind.model_validate(json.loads(text))
        raise damaged(f"a record of the kind {kind.__name__}") from None


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
