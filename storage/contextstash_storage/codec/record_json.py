"""Records as the JSON of their rows, and back."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from contextstash_storage.codec.bodies import put_together
from contextstash_storage.codec.compression import Dictionary
from contextstash_storage.codec.derived_form import fields_of
from contextstash_storage.records import EDIT, Edit, Message, NewMessage, Record

StoredRecord = TypeVar("StoredRecord", bound=Record)

_DERIVED = {"role", "kind", "blocks", "usage", "group", "agent_visible", "user_visible"}


def to_json(record: Record, include: set[str] | None = None) -> str:
    """A record's fields as JSON, without absent and default values."""
    try:
        return record.model_dump_json(include=include, exclude_defaults=True)
    except PydanticSerializationError:  # lone surrogates, which UTF-8 can't hold: escape them
        return json.dumps(record.model_dump(mode="json", include=include, exclude_defaults=True))


def from_json(kind: type[StoredRecord], text: str) -> StoredRecord:
    """The record of `to_json`."""
    try:
        return kind.model_validate_json(text)
    except ValidationError:  # escaped lone surrogates
        return kind.model_validate(json.loads(text))


def edit_of(text: str) -> Edit:
    """The edit of `to_json`, of any kind."""
    try:
        return EDIT.validate_json(text)
    except ValidationError:  # escaped lone surrogates
        return EDIT.validate_python(json.loads(text))


def derived(message: NewMessage) -> str:
    """What is derived from a message, as JSON, without absent and default values."""
    return to_json(message, _DERIVED)


def message_of(
    session_id: str,
    row: tuple[Any, ...],
    stored: tuple[bytes, Iterable[tuple[str, bytes]]] | None,
    dictionary: Dictionary | None = None,
) -> Message:
    """The message of a row (seq, key, derived, created_at), with its body if that was read."""
    seq, key, derived_fields, created = row
    fields = fields_of(derived_fields)
    fields.setdefault("kind", "message")
    fields.setdefault("blocks", ())
    return Message(
        session_id=session_id,
        seq=seq,
        key=key,
        created_at=time_of(created),
        body=None if stored is None else put_together(*stored, dictionary),
        **fields,
    )


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_MICROSECOND = timedelta(microseconds=1)


def stored_time(time: datetime) -> tuple[str, int | None]:
    """A message's `created_at` and `created`: the microseconds since 1970 take a quarter of the text, but have no zone
    except UTC."""
    return ("", (time - _EPOCH) // _MICROSECOND) if time.utcoffset() == timedelta(0) else (time.isoformat(), None)


def time_of(stored: str | int) -> datetime:
    """The time of STORED_TIME."""
    return datetime.fromisoformat(stored) if isinstance(stored, str) else _EPOCH + timedelta(0, 0, stored)
