"""The common parts of both stores' rows: a session's columns, and the errors for what is not there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from contextstash_storage.codec.record_json import from_json
from contextstash_storage.errors import BadInputError, HandleNotFoundError, SessionNotFoundError
from contextstash_storage.handles import HANDLE
from contextstash_storage.records import Counters, Session
from contextstash_storage.sql.steps import Key, Statement, Steps

SESSION_COLUMNS = (
    "{number}, session_id, owner, agent, model, format, title, source, settings, parent_session_id,"
    " created_at, updated_at, counters"
)

CHANGEABLE = frozenset({"agent", "model", "format", "title", "source", "settings"})


def now() -> datetime:
    """The current time in UTC."""
    return datetime.now(UTC)


def no_session(session_id: str) -> SessionNotFoundError:
    """The error for a session that does not exist."""
    return SessionNotFoundError(
        f"There is no session '{session_id}'. `contextstash sessions`, or the resource context://sessions, lists those"
        " there are."
    )


def no_handle(handle: str, session_id: str | None) -> HandleNotFoundError:
    """The error for a handle that does not exist, or not in the named session."""
    what = f"There is no output '{handle}'{' in that session' * (session_id is not None)}."
    if not HANDLE.fullmatch(handle):
        what = f"'{handle}' is too short, or no handle."
    return HandleNotFoundError(
        f"{what} Handles look like out_k3f9x2abq7m4wz5d; search_history finds outputs and names theirs."
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


def read_session(owner: str, session_id: str, *, locked: bool = False) -> Steps[tuple[Key, Session]]:
    """A session's key and record; with `locked` no other transaction changes it until this one ends. Raises
    SessionNotFoundError."""
    lock = "{lock}" if locked else ""
    text = f"SELECT {SESSION_COLUMNS} FROM sessions WHERE owner = ? AND session_id = ?{lock}"
    rows = yield Statement(text, (owner, session_id))
    if not rows:
        raise no_session(session_id)
    number = rows[0][0]
    return (owner, session_id) if number is None else (number,), session_of(tuple(rows[0]))


FEW = 16
"""Up to so many records are made where their rows are read; of more only the rows, which takes a tenth of the time:
others wait for the connection, or the event loop."""

Made = TypeVar("Made")


async def made(make: Callable[[Any], Made], rows: Sequence[Any]) -> list[Made]:
    """The records that rows are made into: of many rows in a thread, so that other calls need not wait."""
    if len(rows) <= FEW:
        return [make(row) for row in rows]
    return await asyncio.to_thread(lambda: [make(row) for row in rows])
