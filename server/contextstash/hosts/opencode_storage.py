"""Where OpenCode keeps its sessions: files of JSON, a database, or an exported file. See contextstash.hosts.opencode.

A session in the database is named as if it were a file in it: `…/opencode.db/<session id>`.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from contextstash.hosts.documents import Json, line_of, load_document, objects, part, stamp_of
from contextstash.hosts.transcript import Line, Stamp, text_of

DATABASE = "opencode.db"
STILL_CHANGING = 3
"""How many of the last messages are looked at file by file; of the others a new file is seen by its folder."""


def claims(path: Path, document: object) -> bool:
    if _in_database(path):
        return True
    if not isinstance(document, dict):
        return False
    if part(document, "info").get("id") and isinstance(document.get("messages"), list):
        return all("info" in item and "parts" in item for item in objects(document["messages"]))
    return bool(text_of(document.get("id"))) and _messages_folder(path) is not None


def stamp(path: Path) -> Stamp:
    if _in_database(path):
        rows = "SELECT COUNT(*), COALESCE(MAX(time_updated), 0) FROM {} WHERE session_id = ?"
        with closing(_open(path.parent)) as database:
            found = [database.execute(rows.format(table), (path.name,)).fetchone() for table in ("message", "part")]
        return [int(number) for row in found for number in row]
    messages = _messages_folder(path)
    if messages is None:
        return stamp_of([path])
    files = sorted(messages.glob("*.json"))
    parts = [place for file in files if (place := _parts_folder(file)) is not None]
    late = [file for place in parts[-STILL_CHANGING:] for file in sorted(place.glob("*.json"))]
    return stamp_of([path, messages, *parts, *files[-STILL_CHANGING:], *late])


def load(path: Path) -> list[Line]:
    """The session's own record, then each message with its parts."""
    if _in_database(path):
        return [line_of(record) for record in _from_database(path)]
    document = load_document(path)
    if not isinstance(document, dict):
        return []
    if isinstance(document.get("messages"), list):
        return [line_of(record) for record in (part(document, "info"), *objects(document["messages"]))]
    return [line_of(record) for record in (document, *_from_files(path))]


def _from_files(path: Path) -> Iterator[Json]:
    messages = _messages_folder(path)
    for file in sorted(messages.glob("*.json")) if messages else []:
        parts_folder = _parts_folder(file)
        items = [load_document(item) for item in sorted(parts_folder.glob("*.json"))] if parts_folder else []
        info = load_document(file)
        if isinstance(info, dict) and text_of(info.get("id")):
            yield {"info": info, "parts": objects(items)}


def _messages_folder(path: Path) -> Path | None:
    """Of a session's file: `session/<project>/<id>.json`, once `session/info/<id>.json`."""
    storage = path.parent.parent.parent
    places = (storage / "message" / path.stem, path.parent.parent / "message" / path.stem)
    return next((place for place in places if place.is_dir()), None)


def _parts_folder(message: Path) -> Path | None:
    """Of a message's file: `part/<message>`, once `part/<session>/<message>`."""
    storage = message.parent.parent.parent
    places = (storage / "part" / message.stem, storage / "part" / message.parent.name / message.stem)
    return next((place for place in places if place.is_dir()), None)


def _in_database(path: Path) -> bool:
    return path.parent.suffix == ".db" and path.parent.is_file()


def _open(file: Path) -> sqlite3.Connection:
    """The database, to be read. Raises OSError where it can't be."""
    try:
        database = sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True, timeout=2.0)
        database.execute("SELECT id FROM message LIMIT 1")
    except sqlite3.Error as error:
        raise OSError(f"{file.name} is no database of OpenCode's that can be read ({error})") from error
    return database


def _from_database(path: Path) -> Iterator[Json]:
    with closing(_open(path.parent)) as database:
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
        found = json.loads(data) if isinstance(data, str | bytes) else None
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {}


def sessions_in_database(file: Path) -> list[Path]:
    """Every session in this database. Raises OSError where it is none of OpenCode's."""
    with closing(_open(file)) as database:
        rows = database.execute("SELECT id FROM session ORDER BY time_created, id").fetchall()
    return [file / str(session) for (session,) in rows]


def sessions_in_files(storage: Path) -> list[Path]:
    """Every session in this storage folder; none where it is none."""
    files = sorted((storage / "session").glob("*/*.json"))
    return [file for file in files if _messages_folder(file) is not None]


def data_folder(home: Path) -> Path:
    """Where OpenCode keeps its data, by its own rule the same on each system."""
    configured = os.environ.get("XDG_DATA_HOME")
    return (Path(configured) if configured else home / ".local" / "share") / "opencode"


def current_sessions(folder: Path, project: Path | None) -> list[Path]:
    """The session of this project that was touched last (of any project where none is named), then those of its
    sub-agents."""
    database = folder if folder.suffix == ".db" else folder / DATABASE
    if database.is_file():
        return _current_in_database(database, project)
    return _current_in_files(folder if (folder / "session").is_dir() else folder / "storage", project)


def _current_in_database(file: Path, project: Path | None) -> list[Path]:
    with closing(_open(file)) as database:
        rows = database.execute("SELECT id, parent_id, directory FROM session ORDER BY time_updated DESC").fetchall()
    own = [row[0] for row in rows if row[1] is None and (project is None or _same(row[2], project))]
    if not own:
        return []
    return [file / str(own[0]), *(file / str(row[0]) for row in rows if row[1] == own[0])]


def _current_in_files(storage: Path, project: Path | None) -> list[Path]:
    found = [(file, head) for file in sessions_in_files(storage) if isinstance(head := load_document(file), dict)]
    found.sort(key=lambda item: _touched(*item), reverse=True)
    own = [
        (file, head)
        for file, head in found
        if not head.get("parentID") and (project is None or _same(head.get("directory"), project))
    ]
    if not own:
        return []
    return [own[0][0], *(file for file, head in found if head.get("parentID") == own[0][1].get("id"))]


def _touched(file: Path, head: Json) -> float:
    """When something was last said in a session."""
    folder = _messages_folder(file)
    updated = part(head, "time").get("updated")
    told = float(updated) if isinstance(updated, int | float) else 0.0
    return max(told, folder.stat().st_mtime_ns / 1e6 if folder else 0.0)


def _same(directory: object, project: Path) -> bool:
    return isinstance(directory, str) and Path(directory) in (project.absolute(), project.resolve())
