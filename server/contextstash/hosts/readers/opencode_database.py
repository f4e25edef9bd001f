"""OpenCode's database of sessions, of versions from 1.2 on, opened read-only. See contextstash.hosts.readers.opencode.

The path of a session in the database is written as if the database were a folder: `…/opencode.db/<session id>`. Tables
as in anomalyco/opencode, packages/opencode/src/session/session.sql.ts.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from contextstash.files.regular_files import open_regular
from contextstash.hosts.readers.documents import Json, Stamp
from contextstash.hosts.readers.transcript import is_at
from contextstash.json.json_text import lenient_value

DATABASES = "opencode*.db"
"""`opencode.db`, or `opencode-<channel>.db` of an unreleased version (src/storage/db.ts)."""


def is_in_database(path: Path) -> bool:
    """Whether this names a session in a database."""
    return path.parent.suffix == ".db" and path.parent.is_file()


@contextmanager
def _open(file: Path) -> Iterator[sqlite3.Connection]:
    """The database, opened read-only. Raises OSError if it cannot be read, is a pipe, or has views in the place of
    tables: a query of a folder that somebody else wrote may never end."""
    open_regular(file).close()
    try:
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True, timeout=2.0)) as database:
            if database.execute("SELECT 1 FROM sqlite_schema WHERE type NOT IN ('table', 'index')").fetchone():
                raise OSError(f"{file.name} is no database of OpenCode: it has views or triggers")
            yield database
    except sqlite3.Error as error:
        raise OSError(f"{file.name} cannot be read as a database of OpenCode ({error})") from error


def stamp_in_database(path: Path) -> Stamp:
    """How many rows a session has in each table, and when one of them changed last. Raises OSError."""
    rows = "SELECT COUNT(*), COALESCE(MAX(time_updated), 0) FROM {} WHERE session_id = ?"
    with _open(path.parent) as database:
        found = [database.execute(rows.format(table), (path.name,)).fetchone() for table in ("message", "part")]
    return [int(number) for row in found for number in row]


def load_from_database(path: Path) -> Iterator[Json]:
    """The session's own record, then each message with its parts. Raises OSError."""
    with _open(path.parent) as database:
        found = database.execute("SELECT id, parent_id, title, directory FROM session WHERE id = ?", (path.name,))
        session = found.fetchone()
        if session is None:
            return
        head = dict(zip(("id", "parentID", "title", "directory"), session, strict=True))
        yield {name: value for name, value in head.items() if value is not None}
        parts: dict[str, list[Json]] = {}
        rows = "SELECT message_id, id, data FROM part WHERE session_id = ? ORDER BY message_id, id"
        for message_id, part_id, data in database.execute(rows, (path.name,)):
            parts.setdefault(message_id, []).append({**_object(data), "id": part_id})
        rows = "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id"
        for message_id, data in database.execute(rows, (path.name,)):
            yield {"info": {**_object(data), "id": message_id}, "parts": parts.get(message_id, [])}


def _object(data: object) -> Json:
    try:
        found = lenient_value(data) if isinstance(data, str | bytes) else None
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {}


def sessions_in_database(file: Path) -> list[Path]:
    """Every session in this database. Raises OSError if it is not a database of OpenCode."""
    with _open(file) as database:
        rows = database.execute("SELECT id FROM session ORDER BY time_created, id").fetchall()
    return [file / str(session) for (session,) in rows]


def current_in_database(file: Path, project: Path | None) -> list[Path]:
    """The session of this project that was changed last (of any project if none is named), then those of its
    sub-agents. Raises OSError."""
    with _open(file) as database:
        rows = database.execute("SELECT id, parent_id, directory FROM session ORDER BY time_updated DESC").fetchall()
    own = [row[0] for row in rows if row[1] is None and (project is None or is_at(row[2], project))]
    if not own:
        return []
    return [file / str(own[0]), *(file / str(row[0]) for row in rows if row[1] == own[0])]
