"""Rows of the database to records and back."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from contextstash_storage.codec.bodies import put_together
from contextstash_storage.codec.compression import Dictionary
from contextstash_storage.codec.derived_form import fields_of
from contextstash_storage.errors import BadInputError, HandleNotFoundError, SessionNotFoundError
from contextstash_storage.records import EDIT, Counters, Edit, Message, NewMessage, Record, Session

SESSION_COLUMNS = (
    "session, session_id, owner, agent, model, format, title, source, settings, parent_session_id,"
    " created_at, updated_at, counters"
)
CHANGEABLE = frozenset({"agent", "model", "format", "title", "source", "settings"})

StoredRecord = TypeVar("StoredRecord", bound=Record)

_DERIVED = {"role", "kind", "blocks", "usage", "group", "agent_visible", "user_visible"}


def now() -> datetime:
    """The current time in UTC."""
    return datetime.now(UTC)


def session_row(db: sqlite3.Connection, owner: str, session_id: str) -> tuple[int, Session]:
    """A session's row number and record. Raises SessionNotFoundError."""
    row = db.execute(
        f"SELECT {SESSION_COLUMNS} FROM sessions WHERE owner = ? AND session_id = ?", (owner, session_id)
    ).fetchone()
    if row is None:
        raise no_session(session_id)
    return row[0], session_of(row)


def no_session(session_id: str) -> SessionNotFoundError:
    """The error for a session that does not exist."""
    return SessionNotFoundError(
        f"There is no session '{session_id}'. `contextstash sessions`, or the resource context://sessions, lists those"
        " there are."
    )


def no_handle(handle: str, session_id: str | None) -> HandleNotFoundError:
    """The error for a handle that does not exist, or not in the named session."""
    return HandleNotFoundError(
        f"There is no archived output '{handle}'{' in that session' * (session_id is not None)}."
        " Handles look like out_k3f9x2abq7m4wz5d; search_history finds outputs and names theirs."
    )


def check_changes(changes: Mapping[str, Any]) -> None:
    """Raise BadInputError if these fields of a session cannot be changed."""
    unknown = changes.keys() - CHANGEABLE
    if unknown:
        raise BadInputError(f"A session's {', '.join(sorted(unknown))} cannot be changed.")


def session_of(row: tuple[Any, ...]) -> Session:
    """The session of a row of SESSION_COLUMNS."""
    (
        _,
        session_id,
        owner,
        agent,
        model,
        format_,
        title,
        source,
        settings,
        parent,
        created,
        updated,
        counters,
    ) = row
    return Session(
        session_id=session_id,
        owner=owner,
        agent=agent,
        model=model,
        format=format_,
        title=title,
        source=source,
        settings=json.loads(settings),
        parent_session_id=parent,
        created_at=datetime.fromisoformat(created),
        updated_at=datetime.fromisoformat(updated),
        counters=from_json(Counters, counters),
    )


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


STORED_TIME = "ifnull(messages.created, messages.created_at)"
"""What `time_of` reads of a message."""

TIME_TEXT = (
    "CASE WHEN created IS NULL THEN created_at ELSE"
    " strftime('%Y-%m-%dT%H:%M:%S', (created - (created % 1000000 + 1000000) % 1000000) / 1000000, 'unixepoch')"
    " || iif(created % 1000000, printf('.%06d', (created % 1000000 + 1000000) % 1000000), '') || '+00:00' END"
)
"""The same as the text that datetime.isoformat() writes, which can be compared with those of sessions."""


def stored_time(time: datetime) -> tuple[str, int | None]:
    """A message's `created_at` and `created`: the microseconds since 1970 take a quarter of the text, but have no zone
    except UTC."""
    return ("", (time - _EPOCH) // _MICROSECOND) if time.utcoffset() == timedelta(0) else (time.isoformat(), None)


def time_of(stored: str | int) -> datetime:
    """The time of STORED_TIME."""
    return datetime.fromisoformat(stored) if isinstance(stored, str) else _EPOCH + timedelta(0, 0, stored)
