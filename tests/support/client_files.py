"""Files as clients write them, records of Claude Code's transcripts, and the messages that readers find in them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from contextstash.clients.follow import ingest, recognize
from contextstash.clients.transcripts import Batch, State, split_lines
from contextstash.messages.detection import get_format
from contextstash.record.transcript_records import TranscriptMessage, TranscriptSession
from contextstash.request.handoff import ClientMessage
from contextstash.stash import Stash


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
    span: tuple[int, int] = (1, 2),
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
        database.execute("INSERT INTO session VALUES (?, ?, ?, ?, ?, ?)", (session_id, parent, title, directory, *span))
        for place, (head, parts) in enumerate(talk):
            data = json.dumps({name: value for name, value in head.items() if name not in ("id", "sessionID")})
            database.execute("INSERT INTO message VALUES (?, ?, ?, ?, ?)", (head["id"], session_id, place, place, data))
            for number, part in enumerate(parts):
                row = (f"prt_{number:03}", head["id"], session_id, number, number, json.dumps(part))
                database.execute("INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)", row)
    return file / session_id


def write_session(
    client: str, home: Path, session: str, project: str | Path, *texts: str, reply: str = "", hour: int = 10
) -> Path:
    """A session in a client's own files below this home, in which the user said these texts in this project from this
    hour on, one a minute; each has a `reply`, if one is given. Returns its transcript."""
    said = [(role, text) for each in texts for role, text in (("user", each), ("assistant", reply)) if text]
    times = [f"2026-11-20T{hour}:{minute % 60:02}:00Z" for minute in range(len(said) + 1)]
    if client == "codex":
        lines: list[dict[str, Any]] = [{"type": "session_meta", "payload": {"id": session, "cwd": str(project)}}]
        for role, text in said:
            content = [{"type": "output_text" if role == "assistant" else "input_text", "text": text}]
            lines.append({"type": "response_item", "payload": {"type": "message", "role": role, "content": content}})
        path = home / ".codex" / "sessions" / "2026" / "11" / "20" / f"rollout-{session}.jsonl"
        return write_lines(path, [{"timestamp": at, **line} for at, line in zip(times, lines, strict=True)])
    if client == "gemini":
        kinds = {"user": "user", "assistant": "gemini"}
        lines = [
            {"id": f"m{n}", "timestamp": times[n], "type": kinds[role], "content": text}
            for n, (role, text) in enumerate(said)
        ]
        write_json(home / ".gemini" / "projects.json", {"projects": {str(project): "orchard-1"}})
        path = home / ".gemini" / "tmp" / "orchard-1" / "chats" / f"session-{session}.jsonl"
        return write_lines(path, [{"sessionId": session, "projectHash": "h", "kind": "main"}, *lines])
    if client == "opencode":
        talk = [
            ({"id": f"m{n}", "role": role, "time": {"created": 1, "completed": 2}}, [{"type": "text", "text": text}])
            for n, (role, text) in enumerate(said)
        ]
        database = home / ".local" / "share" / "opencode" / "opencode.db"
        began, ended = (int(datetime.fromisoformat(at).timestamp() * 1_000) for at in (times[0], times[-1]))
        return write_opencode(database, session, talk, directory=str(project), span=(began, ended))
    assert client == "pi"
    lines = [
        {"type": "message", "timestamp": times[n], "number": n, "message": {"role": role, "content": text}}
        for n, (role, text) in enumerate(said)
    ]
    path = home / ".pi" / "agent" / "sessions" / f"--{str(project).strip('/').replace('/', '-')}--" / f"{session}.jsonl"
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


SESSION = "5b1f6c1e-0000-4000-8000-000000000001"

Record = dict[str, Any]


def record(kind: str, uuid: str, parent: str | None, content: Any, **more: Any) -> Record:
    """A message below its parent; `more` overrides the fields of the record, and those of its `message`."""
    model = {"id": f"msg_{uuid}", "type": "message", "model": "claude-sonnet-4-5"} if kind == "assistant" else {}
    message = {**model, "role": kind, "content": content, **more.pop("message", {})}
    return {
        "parentUuid": parent,
        "isSidechain": False,
        "sessionId": SESSION,
        "type": kind,
        "message": message,
        "uuid": uuid,
        "timestamp": "2026-03-03T09:00:00.000Z",
        **more,
    }


def prompt(uuid: str, parent: str | None, text: str, **more: Any) -> Record:
    return record("user", uuid, parent, text, **more)


def reply(uuid: str, parent: str | None, text: str, **more: Any) -> Record:
    return record("assistant", uuid, parent, [{"type": "text", "text": text}], **more)


def call(uuid: str, parent: str, call_id: str) -> Record:
    block = {"type": "tool_use", "id": call_id, "name": "Bash", "input": {"command": "ls"}}
    return record("assistant", uuid, parent, [block])


def result(uuid: str, parent: str, call_id: str, text: str = "done") -> Record:
    return record("user", uuid, parent, [{"type": "tool_result", "tool_use_id": call_id, "content": text}])


def passed(uuid: str, parent: str | None, **more: Any) -> Record:
    return {"type": "progress", "uuid": uuid, "parentUuid": parent, "sessionId": SESSION, **more}


def summary(uuid: str, covered: str) -> list[Record]:
    boundary = {"type": "system", "subtype": "compact_boundary", "logicalParentUuid": covered}
    return [
        passed(f"{uuid}-boundary", None, **boundary),
        prompt(uuid, f"{uuid}-boundary", "Summary of it all", isCompactSummary=True),
    ]


def as_lines(records: list[Record]) -> bytes:
    return b"".join(json.dumps(item).encode() + b"\n" for item in records)


CARRIED_OVER = "This session is being continued from a previous conversation that ran out of context."


class TranscriptFile:
    """The transcript of SESSION, and those of its sub-agents."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._number = 0

    def write(self, role: str, content: Any, *, agent: str | None = None, **fields: Any) -> None:
        """A record, of a sub-agent if one is named; `message` holds further fields of its message."""
        self._number += 1
        path = self.path
        if agent is not None:
            path = path.with_suffix("") / "subagents" / f"agent-{agent}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            fields |= {"isSidechain": True, "agentId": agent}
        uuid, parent = (f"00000000-0000-4000-8000-{number:012}" for number in (self._number, self._number - 1))
        time = f"2026-11-20T10:{self._number // 60:02}:{self._number % 60:02}.000Z"
        written = record(role, uuid, parent if self._number > 1 else None, content, **{"timestamp": time, **fields})
        with path.open("a") as file:
            file.write(json.dumps(written) + "\n")


class ClientTranscript(TranscriptFile):
    """The transcript in this folder; `read` records what is new in it."""

    def __init__(self, folder: Path, stash: Stash) -> None:
        super().__init__(folder / f"{SESSION}.jsonl")
        self._stash = stash

    def say(self, text: str, prompt_tokens: int | None = None) -> None:
        """A reply of the model; `prompt_tokens` is what the provider reports for it."""
        usage = {} if prompt_tokens is None else {"usage": {"input_tokens": prompt_tokens, "output_tokens": 5}}
        self.write("assistant", [{"type": "text", "text": text}], message=usage)

    def call(self, tool: str, given: Any, output: str) -> None:
        """A tool call and its result."""
        number = f"toolu_{self._number}"
        self.write("assistant", [{"type": "tool_use", "id": number, "name": tool, "input": given}])
        self.write("user", [{"type": "tool_result", "tool_use_id": number, "content": output}])

    def compact(self, summary: str = CARRIED_OVER) -> None:
        """The client's compaction."""
        self.write("user", summary, isCompactSummary=True)

    async def read(self) -> str:
        """Record what is new; returns the session's id."""
        report = await ingest(self._stash, self.path)
        assert report.session_id == SESSION
        return report.session_id


def applied(messages: Sequence[ClientMessage], window: Sequence[Mapping[str, Any]]) -> list[ClientMessage]:
    """A client's list of messages as it is once a window is applied to it, as the plugins do."""
    shown: list[ClientMessage] = []
    for part in window:
        if "at" not in part:
            shown.append(ClientMessage("", part["role"], part["text"]))
            continue
        message, texts = messages[part["at"]], part.get("results", {})
        results = tuple(replace(each, text=texts.get(each.id, each.text)) for each in message.results)
        shown.append(replace(message, results=results))
    return shown
