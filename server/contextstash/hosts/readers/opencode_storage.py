"""Finds and loads OpenCode's sessions: JSON files, a database, or an exported file. See hosts.readers.opencode.

The database is read by contextstash.hosts.readers.opencode_database.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from contextstash.hosts.readers.documents import Json, line_of, load_document, objects, part, stamp_of
from contextstash.hosts.readers.newest import is_within, newest_first
from contextstash.hosts.readers.opencode_database import (
    DATABASES,
    current_in_database,
    is_at,
    is_in_database,
    load_from_database,
    stamp_in_database,
)
from contextstash.hosts.readers.transcript import Line, Stamp, text_of

STILL_CHANGING = 3
"""How many of the last messages are checked file by file; in the others a new file is detected by its folder's time."""


def claims(path: Path, document: object) -> bool:
    if is_in_database(path):
        return True
    if not isinstance(document, dict):
        return False
    if part(document, "info").get("id") and isinstance(document.get("messages"), list):
        return all("info" in item and "parts" in item for item in objects(document["messages"]))
    return bool(text_of(document.get("id"))) and _messages_folder(path) is not None


def stamp(path: Path) -> Stamp:
    if is_in_database(path):
        return stamp_in_database(path)
    messages = _messages_folder(path)
    if messages is None:
        return stamp_of([path])
    files = sorted(messages.glob("*.json"))
    parts = [place for file in files if (place := _parts_folder(file)) is not None]
    late = [file for place in parts[-STILL_CHANGING:] for file in sorted(place.glob("*.json"))]
    return stamp_of([path, messages, *parts, *files[-STILL_CHANGING:], *late])


def load(path: Path) -> list[Line]:
    """The session's own record, then each message with its parts."""
    if is_in_database(path):
        return [line_of(record) for record in load_from_database(path)]
    document = load_document(path)
    if not isinstance(document, dict):
        return []
    if isinstance(document.get("messages"), list):
        return [line_of(record) for record in (part(document, "info"), *objects(document["messages"]))]
    return [line_of(record) for record in (document, *_from_files(path))]


def _from_files(path: Path) -> Iterator[Json]:
    messages = _messages_folder(path)
    if messages is None:
        return
    storage = messages.parent.parent
    for file in _files(messages, storage):
        parts_folder = _parts_folder(file)
        items = [load_document(item) for item in _files(parts_folder, storage)] if parts_folder else []
        info = load_document(file)
        if isinstance(info, dict) and text_of(info.get("id")):
            yield {"info": info, "parts": objects(items)}


def _files(folder: Path, storage: Path) -> list[Path]:
    """The files of a folder, in order, without links to files outside the storage."""
    return [file for file in sorted(folder.glob("*.json")) if is_within(file, storage)]


def _messages_folder(path: Path) -> Path | None:
    """The folder of messages for a session's file: `session/<project>/<id>.json`, formerly `session/info/<id>.json`."""
    storage = path.parent.parent.parent
    places = (storage / "message" / path.stem, path.parent.parent / "message" / path.stem)
    return next((place for place in places if place.is_dir()), None)


def _parts_folder(message: Path) -> Path | None:
    """The folder of a message's parts: `part/<message>`, formerly `part/<session>/<message>`."""
    storage = message.parent.parent.parent
    places = (storage / "part" / message.stem, storage / "part" / message.parent.name / message.stem)
    return next((place for place in places if place.is_dir()), None)


def sessions_in_files(storage: Path) -> list[Path]:
    """Every session in this storage folder; none if it is not one."""
    files = sorted((storage / "session").glob("*/*.json"))
    return [file for file in files if is_within(file, storage) and _messages_folder(file) is not None]


def data_folder(home: Path) -> Path:
    """The folder of OpenCode's data, which is the same on each system; the database itself if OPENCODE_DB names one."""
    configured = os.environ.get("XDG_DATA_HOME")
    folder = (Path(configured) if configured else home / ".local" / "share") / "opencode"
    return folder / os.environ.get("OPENCODE_DB", "")


def current_sessions(folder: Path, project: Path | None) -> list[Path]:
    """The session of this project that was changed last (of any project if none is named), then those of its
    sub-agents."""
    databases = [folder] if folder.is_file() else newest_first(folder.glob(DATABASES), folder)
    if databases:
        return current_in_database(databases[0], project)
    return _current_in_files(folder if (folder / "session").is_dir() else folder / "storage", project)


def _current_in_files(storage: Path, project: Path | None) -> list[Path]:
    found = [(file, head) for file in sessions_in_files(storage) if isinstance(head := load_document(file), dict)]
    found.sort(key=lambda item: _changed_at(*item), reverse=True)
    own = [
        (file, head)
        for file, head in found
        if not head.get("parentID") and (project is None or is_at(head.get("directory"), project))
    ]
    if not own:
        return []
    return [own[0][0], *(file for file, head in found if head.get("parentID") == own[0][1].get("id"))]


def _changed_at(file: Path, head: Json) -> float:
    """When a session was last changed, in milliseconds since 1970."""
    folder = _messages_folder(file)
    updated = part(head, "time").get("updated")
    reported = float(updated) if isinstance(updated, int | float) else 0.0
    return max(reported, folder.stat().st_mtime_ns / 1e6 if folder else 0.0)
