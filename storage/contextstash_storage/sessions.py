"""Sessions: their rows made, found, changed, listed and summed up, and their deletion."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from contextstash_storage.errors import DamagedError, SessionNotFoundError, StoreError
from contextstash_storage.notes import note_deleted
from contextstash_storage.records import Counters, Session, checksum, damaged, from_json, to_json
from contextstash_storage.transaction import Database, Tx, TxWork, microseconds, now, storable, time_of

HIDDEN_OWNER = "\x1fhidden"
"""The owner of sessions that no reader sees: they are being copied or deleted. No user's name contains a control
character."""

_NAMES = ("agent", "model", "format", "title", "source")
_TIMES = ("created_at", "updated_at", "last_message_at")
_STATE = (*_NAMES, "settings", "counters")
"""What of a session changes in its row, of which the row has a checksum together with the session's id."""

_FIELDS = ("session_id", *_STATE, "owner", "parent_session_id", *_TIMES)
_COLUMNS = ", ".join((*_FIELDS, "checksum"))
_SET = ", ".join(f"{name} = ?" for name in _STATE)


def _session_of(row: Sequence[Any]) -> Session:
    """The session of a row of _COLUMNS. Raises DamagedError if it is damaged."""
    *values, noted = row
    fields = dict(zip(_FIELDS, values, strict=True))
    try:
        if noted != checksum(*values[: len(_STATE) + 1]):
            raise ValueError("another checksum")
        times = {name: None if fields[name] is None else time_of(fields[name]) for name in _TIMES}
        read = {"settings": json.loads(fields["settings"]), "counters": from_json(Counters, fields["counters"])}
        return Session(**{**fields, **times, **read})
    except (TypeError, ValueError, OverflowError) as error:
        raise damaged(f"session '{fields['session_id']}'") from error


def read_session(tx: Tx, owner: str, session_id: str, *, locked: bool = False) -> tuple[int, Session]:
    """A session's row number and record; with `locked` no other transaction changes it until this one ends. Raises
    SessionNotFoundError."""
    row, *values = _row(tx, owner, session_id, f"session, {_COLUMNS}", tx.lock if locked else "")
    return row, _session_of(values)


def row_of(tx: Tx, owner: str, session_id: str, *, locked: bool = False) -> int:
    """A session's row number, also of one that is damaged; see `read_session`."""
    return int(_row(tx, owner, session_id, "session", tx.lock if locked else "")[0])


def _row(tx: Tx, owner: str, session_id: str, columns: str, lock: str = "") -> Sequence[Any]:
    rows = tx.rows(f"SELECT {columns} FROM sessions WHERE owner = ? AND session_id = ?{lock}", (owner, session_id))
    if not rows:
        raise SessionNotFoundError(
            f"There is no session '{session_id}'. `contextstash sessions`, or the resource context://sessions, lists"
            " those there are."
        )
    found: Sequence[Any] = rows[0]
    return found


def _stored(name: str, value: Any) -> object:
    """A field's value in its column."""
    if name in ("settings", "counters"):
        return json.dumps(dict(value)) if name == "settings" else to_json(value)
    if value is None or name not in (*_NAMES, *_TIMES):
        return value
    return storable(value) if name in _NAMES else microseconds(value)


def insert_session(tx: Tx, session: Session) -> bool:
    """Store a session's row; False if its owner has one of that id."""
    values = [_stored(name, getattr(session, name)) for name in _FIELDS]
    text = f"INSERT INTO sessions ({_COLUMNS}) VALUES ({', '.join('?' * len(values))}, ?)"
    stored = (*values, checksum(*values[: len(_STATE) + 1]))
    return tx.execute(f"{text} ON CONFLICT (owner, session_id) DO NOTHING", stored) == 1


def store(tx: Tx, row: int, session: Session, **changes: Any) -> Session:
    """Store what changes in a session, and that it was changed now; returns the changed session."""
    updated = now()
    changed = session.model_copy(update={**changes, "updated_at": updated})
    values = [_stored(name, getattr(changed, name)) for name in _STATE]
    text = f"UPDATE sessions SET {_SET}, updated_at = ?, checksum = ? WHERE session = ?"
    tx.execute(text, (*values, microseconds(updated), checksum(changed.session_id, *values), row))
    return changed


def create_session(tx: Tx, owner: str, session: Session) -> Session:
    """Store a new session; one that is already there is returned as it is."""
    insert_session(tx, session.model_copy(update={"owner": owner}))
    return read_session(tx, owner, session.session_id)[1]


def update_session(tx: Tx, row: int, session: Session, /, **changes: Any) -> Session:
    """Change `agent`, `model`, `format`, `title`, `source` or `settings`."""
    store(tx, row, session, **changes)
    return read_session(tx, session.owner, session.session_id)[1]


def owners(tx: Tx, _: str) -> list[str]:
    """All owners that have sessions, in order: for those who move a whole database."""
    text = "SELECT DISTINCT owner FROM sessions WHERE owner <> ? ORDER BY owner"
    return [owner for (owner,) in tx.rows(text, (HIDDEN_OWNER,))]


def find_session_ids(tx: Tx, owner: str, prefix: str, limit: int, *, without_agent: str | None = None) -> list[str]:
    """The ids of sessions that begin with `prefix`: first the one that is `prefix`, then the last changed, sub-agents
    behind all others, of which a session may have hundreds; not those of `without_agent`."""
    rows = tx.rows(
        "SELECT session_id FROM sessions WHERE owner = ? AND substr(session_id, 1, ?) = ?"
        " AND agent IS DISTINCT FROM ?"
        " ORDER BY session_id <> ?, parent_session_id IS NOT NULL, updated_at DESC, session DESC LIMIT ?",
        (owner, len(prefix), prefix, without_agent or "", prefix, limit),
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
    text, values = f"SELECT {_COLUMNS} FROM sessions WHERE owner = ?", [owner]
    if parent is not None:
        text += " AND parent_session_id = ?"
        values.append(parent)
    if without_agent is not None:
        text += " AND agent IS DISTINCT FROM ?"
        values.append(without_agent)
    if before is not None:
        text += f" AND ({time}, session) < (?, ?)"
        values += _row(tx, owner, before, f"{time}, session")
    rows = tx.rows(f"{text} ORDER BY {time} DESC, session DESC LIMIT ?", (*values, limit))
    found = []
    for row in rows:
        with suppress(DamagedError):  # `doctor` names it; it must not hide all others
            found.append(_session_of(row))
    if len(found) < len(rows) == limit:
        chosen: dict[str, Any] = {"parent": parent, "without_agent": without_agent, "by_message": by_message}
        found += list_sessions(tx, owner, limit=limit - len(found), before=rows[-1][0], **chosen)
    return found


# Deletion: sessions are hidden, and then removed in pieces, each a transaction: one that takes seconds would keep
# every other process waiting

PAUSE_SECONDS = 0.025
"""How long the database is left to others between two pieces, of a copy or of a deletion. SQLite has no queue: who
waits asks again every few milliseconds, and so meets the pause."""

PIECE_SECONDS = 0.03
"""For how long a piece works before it is committed. The commit can take twice as long, as the search index is written
then: together well below the 250 ms for which no transaction may keep others waiting."""

ROWS_AT_ONCE = 200
"""Rows that are removed between two looks at the clock."""

AGAIN_SECONDS = 5.0
"""After how long a deletion is tried again if the database was locked, the disk full or an older state still read."""

_PARTS = {
    "notes": "note", "entries": "entry", "segments": "segment", "keys": "key", "outputs": "output", "log": "entry"
}  # fmt: skip
"""The tables of what a session has, and the numbers of their rows."""

_EMPTY = ", ".join(f"{name} = NULL" for name in (*_NAMES, "parent_session_id")) + ", counters = '{}', settings = '{}'"

COPY_SECONDS = 600
"""How long the lines of an import may take to come, as from a pipe, before it counts as abandoned. `updated_at` of a
hidden session that is copied is the time of `Tx.clock`, in seconds; that of one to be removed is 0."""


def empty(tx: Tx, row: int, name: str) -> int:
    """Overwrite what the row of a session that is hidden under this name says, and have it removed; 0 if it is not."""
    return tx.execute(f"UPDATE sessions SET {_EMPTY}, updated_at = 0 WHERE session = ? AND session_id = ?", (row, name))


def hide(tx: Tx, owner: str, session_ids: Sequence[str]) -> None:
    """Make sessions invisible before they are deleted, under names that were never used: the first, and those of the
    others that are there. What their rows said is overwritten. Raises SessionNotFoundError."""
    for place, session_id in enumerate(session_ids):
        with suppress(*([SessionNotFoundError] if place else [])):
            row = row_of(tx, owner, session_id, locked=True)
            note_deleted(tx, owner, session_id, row)
            text = "UPDATE sessions SET parent_session_id = NULL WHERE owner = ? AND parent_session_id = ?"
            tx.execute(text, (owner, session_id))
            tx.execute("DELETE FROM notes WHERE session = ? AND kind IN ('cursor', 'lease', 'proxied')", (row,))
            text = "UPDATE sessions SET owner = ?, session_id = ? WHERE session = ?"
            tx.execute(text, (HIDDEN_OWNER, name := uuid.uuid4().hex, row))
            empty(tx, row, name)


def _to_remove(tx: Tx) -> list[tuple[int, str, int]]:
    """The hidden sessions that are not being copied: rows, names, and how many entries the index has for them."""
    now = int(tx.clock())
    text = "SELECT session, session_id, entry_count FROM sessions WHERE owner = ? AND updated_at NOT BETWEEN ? AND ?"
    return tx.rows(text, (HIDDEN_OWNER, max(1, now - COPY_SECONDS + 1), now))


def _remove_some(tx: Tx) -> bool:
    """Remove rows of hidden sessions, for the time of a piece; returns whether there may be more. The words of an entry
    stay in the index's pages, marked as deleted, until these are merged."""
    until = time.monotonic() + PIECE_SECONDS
    for row, name, _ in _to_remove(tx):
        if not empty(tx, row, name):  # a copy's row still says all; this copy became visible meanwhile
            continue
        for table, number in _PARTS.items():
            text = f"SELECT {number} FROM {table} WHERE session = ? LIMIT {ROWS_AT_ONCE}"
            while rows := tx.rows(text, (row,)):
                if table == "entries":
                    tx.many("DELETE FROM words WHERE rowid = ?", rows)
                tx.many(f"DELETE FROM {table} WHERE {number} = ?", rows)
                if time.monotonic() > until:
                    return True
    return False


class Deletions:
    """The deletions of one open database. What a killed process leaves is continued at an opening."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._one_at_a_time = asyncio.Lock()
        self._closing = asyncio.Event()
        self._tasks: set[asyncio.Task[bool]] = set()

    async def close(self) -> None:
        """Stop after the piece that is being worked on."""
        self._closing.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def finish(self) -> bool:
        """Remove everything that is hidden. False if some of it may still be in the files: it is tried again then.
        Cancelling the caller does not stop it."""
        return await asyncio.shield(self.finish_later())

    def finish_later(self, seconds: float = 0.0) -> asyncio.Task[bool]:
        """Begin to remove everything that is hidden in `seconds`; the task says whether the first attempt did it."""
        task = asyncio.create_task(self._attempt(seconds))
        self._tasks.add(task)  # `close` waits for it
        task.add_done_callback(self._tasks.discard)
        return task

    async def _attempt(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), seconds)
        finished = await self._removed()
        if not finished and not self._closing.is_set():
            self.finish_later(AGAIN_SECONDS)
        return finished

    async def _removed(self) -> bool:
        """Remove everything that is hidden; False if some of it may still be in the files."""
        async with self._one_at_a_time:
            try:
                # Read before the pieces: rows of a session that is hidden while these work may be left after them.
                marks = await self._database.read(_to_remove)
                had_words = any(count for *_, count in marks)
                if not marks:
                    return True
                if not await self._pieces(_remove_some):
                    return False
                if not await self._database.forget(self._pieces, self._closing, had_words):
                    return False
                # Only now: whoever opens the database after a crash sees by the rows what is still to be done.
                # With the id, which is random: another process may have removed the row, and its number is used again.
                # An import that went on before the first piece is not removed.
                text = "DELETE FROM sessions WHERE owner = ? AND session = ? AND session_id = ? AND updated_at = 0"
                gone = [(HIDDEN_OWNER, row, session_id) for row, session_id, _ in marks]
                await self._database.write(lambda tx: tx.many(text, gone))
                return True
            except StoreError:  # locked for too long, or the disk is full: the session is invisible all the same
                return False

    async def _pieces(self, piece: TxWork[bool]) -> bool:
        """Do piece after piece until one says that it was the last; False if the work is to stop before that."""
        while not self._closing.is_set():
            if not await self._database.write(piece):
                return True
            await asyncio.sleep(PAUSE_SECONDS)
        return False
