"""Files as hosts write them, and the messages that readers find in them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from contextstash.clients.follow import recognize
from contextstash.clients.transcripts import Batch, State, split_lines
from contextstash.messages.detection import get_format
from contextstash.record.transcript_records import TranscriptMessage, TranscriptSession


def write_json(path: Path, document: Any) -> Path:
    """Write this document to a file; creates the folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def write_lines(path: Path, records: Sequence[Any]) -> Path:
    """Write each record as a line of a file; creates the folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def write_opencode(
    file: Path,
    session_id: str,
    talk: Sequence[tuple[dict[str, Any], Sequence[dict[str, Any]]]],
    *,
    directory: str,
    title: str = "t",
    parent: str | None = None,
) -> Path:
    """Write a session, in place of its former rows, into a database of OpenCode; its path there."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(file)) as database, database:
        times, new = "time_created INTEGER, time_updated INTEGER", "CREATE TABLE IF NOT EXISTS"
        database.execute(f"{new} session (id TEXT, parent_id TEXT, title TEXT, directory TEXT, {times})")
        database.execute(f"{new} message (id TEXT, session_id TEXT, {times}, data TEXT)")
        database.execute(f"{new} part (id TEXT, message_id TEXT, session_id TEXT, {times}, data TEXT)")
        for table, key in (("session", "id"), ("message", "session_id"), ("part", "session_id")):
            database.execute(f"DELETE FROM {table} WHERE {key} = ?", (session_id,))
        database.execute("INSERT INTO session VALUES (?, ?, ?, ?, 1, 2)", (session_id, parent, title, directory))
        for place, (head, parts) in enumerate(talk):
            data = json.dumps({name: value for name, value in head.items() if name not in ("id", "sessionID")})
            database.execute("INSERT INTO message VALUES (?, ?, ?, ?, ?)", (head["id"], session_id, place, place, data))
            for number, part in enumerate(parts):
                row = (f"prt_{number:03}", head["id"], session_id, number, number, json.dumps(part))
                database.execute("INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)", row)
    return file / session_id


def write_session(client: str, home: Path, session: str, project: str | Path, *texts: str, reply: str = "") -> Path:
    """A session in a client's own files below this home, in which the user said these texts in this project; each has a
    `reply`, if one is given. Returns its transcript."""
    said = [(role, text) for each in texts for role, text in (("user", each), ("assistant", reply)) if text]
    at = "2026-11-20T10:00:00Z"
    if client == "codex":
        lines: list[dict[str, Any]] = [{"type": "session_meta", "payload": {"id": session, "cwd": str(project)}}]
        for role, text in said:
            content = [{"type": "output_text" if role == "assistant" else "input_text", "text": text}]
            lines.append({"type": "response_item", "payload": {"type": "message", "role": role, "content": content}})
        path = home / ".codex" / "sessions" / "2026" / "11" / "20" / f"rollout-{session}.jsonl"
        return write_lines(path, [{"timestamp": at, "number": number, **line} for number, line in enumerate(lines)])
    if client == "gemini":
        kinds = {"user": "user", "assistant": "gemini"}
        lines = [
            {"id": f"m{n}", "timestamp": at, "type": kinds[role], "content": text}
            for n, (role, text) in enumerate(said)
        ]
        write_json(home / ".gemini" / "projects.json", {"projects": {str(project): "orchard-1"}})
        path = home / ".gemini" / "tmp" / "orchard-1" / "chats" / "session-1.jsonl"
        return write_lines(path, [{"sessionId": session, "projectHash": "h", "kind": "main"}, *lines])
    if client == "opencode":
        talk = [
            ({"id": f"m{n}", "role": role, "time": {"created": 1, "completed": 2}}, [{"type": "text", "text": text}])
            for n, (role, text) in enumerate(said)
        ]
        database = home / ".local" / "share" / "opencode" / "opencode.db"
        return write_opencode(database, session, talk, directory=str(project))
    assert client == "pi"
    lines = [
        {"type": "message", "timestamp": at, "number": n, "message": {"role": role, "content": text}}
        for n, (role, text) in enumerate(said)
    ]
    path = home / ".pi" / "agent" / "sessions" / f"--{str(project).strip('/').replace('/', '-')}--" / "1.jsonl"
    return write_lines(path, [{"type": "session", "id": session, "cwd": str(project)}, *lines])


def read(path: Path, state: State | None = None) -> list[TranscriptMessage]:
    """The new messages that the matching reader finds; each must be valid in its format."""
    batch = _batch(path, {} if state is None else state)
    return batch.messages if batch else []


def session_of(path: Path) -> TranscriptSession:
    batch = _batch(path, {})
    assert batch
    return batch.session


def _batch(path: Path, state: State) -> Batch | None:
    reader = recognize(path)
    lines = reader.lines(path) if reader.load else split_lines(path.read_bytes(), at_end=True)[0]
    batch = reader.read(lines, state, str(path))
    for message in batch.messages if batch else ():
        get_format(batch.session.format if batch else "").read(message.body)
    assert json.loads(json.dumps(state)) == state
    return batch


def keys(messages: Sequence[TranscriptMessage]) -> list[str]:
    return [str(message.key) for message in messages]


def roles(messages: Sequence[TranscriptMessage]) -> list[str]:
    return [str(message.body["role"]) for message in messages]
