"""Rows of sessions: made, found, changed, listed and summed up."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from contextstash_storage.errors import BadInputError, SessionNotFoundError
from contextstash_storage.records import Call, Counters, DaySum, Session
from contextstash_storage.rows import damaged, from_json, to_json
from contextstash_storage.transaction import Tx, microseconds, now, storable, time_of

HIDDEN_OWNER = "\x1fhidden"
"""The owner of sessions that are being deleted or imported. No user's name contains a control character."""

_NAMES = ("agent", "model", "format", "title", "source")
CHANGEABLE = frozenset({*_NAMES, "settings"})

_TIMES = ("created_at", "updated_at", "last_message_at")

_FIELDS = ("session_id", "owner", *_NAMES, "settings", "parent_session_id", *_TIMES, "counters")

COLUMNS = ", ".join(("session", *_FIELDS))


def no_session(session_id: str) -> SessionNotFoundError:
    """The error for a session that does not exist."""
    return SessionNotFoundError(
        f"There is no session '{session_id}'. `contextstash sessions`, or the resource context://sessions, lists those"
        " there are."
    )


def session_of(row: Sequence[Any]) -> Session:
    """The session of a row of COLUMNS. Raises DamagedError if it is damaged."""
    fields = dict(zip(_FIELDS, row[1:], strict=True))
    try:
        times = {name: None if fields[name] is None else time_of(fields[name]) for name in _TIMES}
        read = {"settings": json.loads(fields["settings"]), "counters": from_json(Counters, fields["counters"])}
        return Session(**{**fields, **times, **read})
    except (TypeError, ValueError) as error:
        raise damaged(f"session '{fields['session_id']}'") from error


def read_session(tx: Tx, owner: str, session_id: str, *, locked: bool = False) -> tuple[int, Session]:
    """A session's row number and record; with `locked` no other transaction changes it until this one ends. Raises
    SessionNotFoundError."""
    text = f"SELECT {COLUMNS} FROM sessions WHERE owner = ? AND session_id = ?{tx.lock if locked else ''}"
    rows = tx.rows(text, (owner, session_id))
    if not rows:
        raise no_session(session_id)
    return rows[0][0], session_of(rows[0])


def row_of(tx: Tx, owner: str, session_id: str) -> int:
    """A session's row number. Raises SessionNotFoundError."""
    rows = tx.rows("SELECT session FROM sessions WHERE owner = ? AND session_id = ?", (owner, session_id))
    if not rows:
        raise no_session(session_id)
    return int(rows[0][0])


def insert_session(tx: Tx, session: Session) -> bool:
    """Store a session's row; False if its owner has one of that id."""
    names = [None if (name := getattr(session, each)) is None else storable(name) for each in _NAMES]
    values = (
        session.session_id,
        session.owner,
        *names,
        json.dumps(dict(session.settings)),
        session.parent_session_id,
        *(None if (time := getattr(session, name)) is None else microseconds(time) for name in _TIMES),
        to_json(session.counters),
    )
    text = f"INSERT INTO sessions ({COLUMNS.removeprefix('session, ')}) VALUES ({', '.join('?' * len(values))})"
    return tx.execute(f"{text} ON CONFLICT (owner, session_id) DO NOTHING", values) == 1


def update_session(tx: Tx, row: int, session: Session, /, **changes: Any) -> Session:
    """Change `agent`, `model`, `format`, `title`, `source` or `settings`. Raises BadInputError for another field."""
    if unknown := changes.keys() - CHANGEABLE:
        raise BadInputError(f"A session's {', '.join(sorted(unknown))} cannot be changed.")
    for name, value in changes.items():
        written = json.dumps(dict(value)) if name == "settings" else None if value is None else storable(value)
        tx.execute(f"UPDATE sessions SET {name} = ? WHERE session = ?", (written, row))
    tx.execute("UPDATE sessions SET updated_at = ? WHERE session = ?", (microseconds(now()), row))
    return read_session(tx, session.owner, session.session_id)[1]


def store_counters(tx: Tx, row: int, session: Session, counters: Counters) -> Session:
    """Store a session's counters and that it was changed now; returns the changed session."""
    updated = now()
    text = "UPDATE sessions SET counters = ?, updated_at = ? WHERE session = ?"
    tx.execute(text, (to_json(counters), microseconds(updated), row))
    return session.model_copy(update={"counters": counters, "updated_at": updated})


def owners(tx: Tx, _: str) -> list[str]:
    """All owners that have sessions, in order: for those who move a whole database."""
    text = "SELECT DISTINCT owner FROM sessions WHERE owner <> ? ORDER BY owner"
    return [owner for (owner,) in tx.rows(text, (HIDDEN_OWNER,))]


def find_session_ids(tx: Tx, owner: str, prefix: str, limit: int, *, without_agent: str | None = None) -> list[str]:
    """The ids of sessions that begin with `prefix`, the last changed first; not those of `without_agent`."""
    rows = tx.rows(
        "SELECT session_id FROM sessions WHERE owner = ? AND substr(session_id, 1, ?) = ?"
        " AND agent IS DISTINCT FROM ? ORDER BY updated_at DESC, session DESC LIMIT ?",
        (owner, len(prefix), prefix, without_agent or "", limit),
    )
    return [session_id for (session_id,) in rows]


def list_sessions(
    tx: Tx,
    owner: str,
    *,
    limit: int = 50,
    before: str | None = None,
    parent: str | None = None,
    without_agent: str | None = None,
    by_message: bool = False,
) -> list[Session]:
    """Sessions by last change, or with `by_message` by the time of their last message, newest first. `before` is
    the last session_id of the previous page; those of `without_agent` are left out."""
    time = "coalesce(last_message_at, updated_at)" if by_message else "updated_at"
    text, values = f"SELECT {COLUMNS} FROM sessions WHERE owner = ?", [owner]
    if parent is not None:
        text += " AND parent_session_id = ?"
        values.append(parent)
    if without_agent is not None:
        text += " AND agent IS DISTINCT FROM ?"
        values.append(without_agent)
    if before is not None:
        found = tx.rows(f"SELECT {time}, session FROM sessions WHERE owner = ? AND session_id = ?", (owner, before))
        if not found:
            raise no_session(before)
        text += f" AND ({time}, session) < (?, ?)"
        values += found[0]
    rows = tx.rows(f"{text} ORDER BY {time} DESC, session DESC LIMIT ?", (*values, limit))
    return [session_of(row) for row in rows]


def session_count(tx: Tx, owner: str) -> int:
    """How many sessions an owner has."""
    [(sessions,)] = tx.rows("SELECT count(*) FROM sessions WHERE owner = ?", (owner,))
    return int(sessions)


_SUMS = ("prompt_tokens", "completion_tokens", "cached_tokens", "cache_write_tokens", "cache_write_1h_tokens")


def call_days(tx: Tx, owner: str, *, session_id: str | None = None, without_agent: str | None = None) -> list[DaySum]:
    """The agents' model calls by day and model, of one session or of all of an owner but those of `without_agent`."""
    named = "session_id = ?" if session_id is not None else "agent IS DISTINCT FROM ?"
    sums: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for (record,) in tx.rows(
        f"SELECT record FROM sessions JOIN log USING (session) WHERE owner = ? AND {named} AND kind = 'call'",
        (owner, session_id if session_id is not None else without_agent or ""),
    ):
        call = from_json(Call, record.decode())
        if call.purpose == "agent" and call.created_at is not None:
            day = sums[call.created_at.date().isoformat(), call.model or ""]
            day.update({"calls": 1, **{name: getattr(call, name) for name in _SUMS}})
            if call.cost is not None:
                day.update({"cost": call.cost, "priced": 1})
    counts = ("calls", "priced", *_SUMS)
    return [
        DaySum(day=day, model=model or None, cost=float(found["cost"]), **{name: found[name] for name in counts})
        for (day, model), found in sorted(sums.items())
    ]
