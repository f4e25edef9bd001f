"""OpenCode: its files, its MCP entry, and its sessions as Anthropic messages.

Sessions are messages made of parts, in its database. Formats as in anomalyco/opencode (formerly sst/opencode),
packages/opencode/src/session/message-v2.ts, session.sql.ts. The path of a session in the database is written as if that
were a folder: `…/opencode.db/<session id>`.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextstash.base.files import open_regular
from contextstash.clients.client import Client, Entry, Files, Plugin, settings_folder
from contextstash.clients.current import is_at, newest_first, since
from contextstash.clients.fields import (
    Json,
    count_of,
    moment,
    objects,
    parse_document,
    part,
    text_of,
    title_of,
    usage_of,
)
from contextstash.clients.transcripts import Line, Reader, Stamp, State
from contextstash.record.transcript_records import TranscriptMessage
from contextstash.safety.sanitize import reminder

if TYPE_CHECKING:
    from contextstash_storage.records import Native, Usage


DATABASES = "opencode*.db"
"""`opencode.db`, or `opencode-<channel>.db` of an unreleased version (src/storage/db.ts)."""


def data_folder() -> Path:
    """The folder of OpenCode's data, which is the same on each system; the database itself if OPENCODE_DB names one."""
    folder = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return folder / "opencode" / os.environ.get("OPENCODE_DB", "")


def current_sessions(folder: Path, project: Path, _: Mapping[str, Any]) -> list[list[Path]]:
    """The sessions of this project that were changed last, each with those of its sub-agents. Our plugin tells the
    calls of its windows apart. Raises OSError."""
    for file in [folder] if folder.is_file() else newest_first(folder.glob(DATABASES), folder)[:1]:
        query = "SELECT id, parent_id, directory, time_created, time_updated FROM session ORDER BY time_updated DESC"
        with _open(file) as database:
            rows = database.execute(query).fetchall()
        own = [row for row in rows if row[1] is None and is_at(row[2], project)]
        quiet = since(*(at / 1000 for at in own[0][3:])) if own else 0.0
        lately = [name for name, *_, changed in own if name == own[0][0] or changed / 1000 > quiet]
        return [[file / name, *(file / row[0] for row in rows if row[1] == name)] for name in lately]
    return []


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
        rows = "SELECT id, parent_id AS parentID, title FROM session WHERE id = ?"
        for session in database.execute(rows, (path.name,)):
            yield dict(zip(("id", "parentID", "title"), session, strict=True))
        parts: dict[str, list[Json]] = {}
        rows = "SELECT message_id, id, data FROM part WHERE session_id = ? ORDER BY message_id, id"
        for message_id, part_id, data in database.execute(rows, (path.name,)):
            parts.setdefault(message_id, []).append({**_object(data), "id": part_id})
        rows = "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id"
        for message_id, data in database.execute(rows, (path.name,)):
            yield {"info": {**_object(data), "id": message_id}, "parts": parts.get(message_id, [])}


def _object(data: str | bytes) -> Json:
    found = parse_document(data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data)
    return found if isinstance(found, dict) else {}


def sessions_in_database(file: Path) -> list[Path]:
    """Every session in this database. Raises OSError if it is not a database of OpenCode."""
    with _open(file) as database:
        rows = database.execute("SELECT id FROM session ORDER BY time_created, id").fetchall()
    return [file / str(session) for (session,) in rows]


INTERRUPTED = "[Tool execution was interrupted]"
"""The result that OpenCode itself writes for a call whose tool did not finish."""


def _said(lines: Iterable[Line], state: State, source: str) -> Iterator[TranscriptMessage]:
    """The messages of a session: each step of a reply, then the results of its calls.

    A reply is read when it is complete, or when another reply follows it: a prompt that follows may wait for its end.
    Not kept: which outputs OpenCode pruned, snapshots, patches, parts of agents, subtasks and retries, attachments of
    results, and the part that marks a compaction if the summary follows it.
    """
    head, *records = [line.record for line in lines] or [{}]
    state |= {"session": head.get("id"), "title": title_of(head.get("title")), "parent": head.get("parentID")}
    last_reply = next((each for each in reversed(records) if part(each, "info").get("role") != "user"), None)
    first_keys: dict[str, str] = {}
    kept: dict[str, str | None] = {}
    for record in records:
        info, parts = part(record, "info"), objects(record.get("parts"))
        key, is_users = text_of(info.get("id")), info.get("role") == "user"
        if key is None:
            continue
        is_complete = part(info, "time").get("completed") or info.get("error")
        if record is last_reply and not is_complete:
            return
        if is_users:
            blocks = [block for item in parts if (block := _user_block(item)) is not None]
            created = moment(part(info, "time").get("created"))
            body = {"role": "user", "content": blocks}
            found = [TranscriptMessage(body=body, key=key, created_at=created)] if blocks else []
            tails = [text_of(each.get("tail_start_id")) for each in parts if each.get("type") == "compaction"]
            kept[key] = tails[0] if tails else None
        else:
            found = list(_reply(info, parts))
        if not is_users and info.get("summary") is True:
            tail = first_keys.get(kept.get(str(info.get("parentID"))) or "")
            found = [replace(each, covers_before=True, covers_before_key=tail) for each in found[:1]]
        for message in found:
            first_keys.setdefault(key, str(message.key))
            yield message


READER = Reader(
    "opencode",
    "anthropic",
    lambda path, _: path.parent.suffix == ".db" and path.parent.is_file(),
    _said,
    load_from_database,
    stamp_in_database,
)


def _user_block(item: Json) -> Native | None:
    kind = item.get("type")
    if kind == "text" and text_of(item.get("text")) and not item.get("ignored"):
        # OpenCode adds synthetic text to the user's message, for example the content of a file that the user named.
        return {"type": "text", "text": reminder(item["text"]) if item.get("synthetic") is True else item["text"]}
    if kind == "file" and item.get("mime") not in ("text/plain", "application/x-directory"):
        # Its data stays in OpenCode's database. Text files are in parts of their own.
        return {"type": "text", "text": f"[Attached {item.get('mime') or 'file'}: {item.get('filename') or 'file'}]"}
    return None


def _reply(info: Json, parts: list[Json]) -> Iterator[TranscriptMessage]:
    """The messages of a reply, step by step. The key of the first step is the id of OpenCode's message; later steps add
    their number."""
    created = moment(part(info, "time").get("created"))
    steps = list(_steps(parts))
    for number, (step, tokens) in enumerate(steps):
        key = str(info["id"]) if number == 0 else f"{info['id']}#{number}"
        tokens = tokens or (part(info, "tokens") if number == len(steps) - 1 else {})
        blocks = [block for item in step if (block := _block(item)) is not None]
        if blocks:
            body = {"role": "assistant", "content": blocks}
            model = text_of(info.get("modelID"))
            yield TranscriptMessage(body, key=key, usage=_usage(tokens), model=model, created_at=created)
        if calls := [item for item in step if _is_call(item)]:
            done = max(part(item, "state", "time").get("end") or 0 for item in calls)
            body = {"role": "user", "content": [_result(item) for item in calls]}
            yield TranscriptMessage(body, key=f"{key}=", created_at=moment(done) or created)


def _steps(parts: list[Json]) -> Iterator[tuple[list[Json], Json]]:
    """The parts of each step, and the tokens reported at its end."""
    step: list[Json] = []
    for item in parts:
        if item.get("type") == "step-finish":
            yield step, part(item, "tokens")
            step = []
        else:
            step.append(item)
    if step:
        yield step, {}


def _is_call(item: Json) -> bool:
    return item.get("type") == "tool" and bool(text_of(item.get("callID"))) and bool(text_of(item.get("tool")))


def _block(item: Json) -> Native | None:
    kind = item.get("type")
    if kind == "text" and text_of(item.get("text")):
        return {"type": "text", "text": item["text"]}
    if kind == "reasoning" and text_of(item.get("text")):
        thinking = {"type": "thinking", "thinking": item["text"]}
        signature = text_of(part(item, "metadata", "anthropic").get("signature"))
        return {**thinking, "signature": signature} if signature else thinking
    if _is_call(item):
        arguments = part(item, "state", "input")
        return {"type": "tool_use", "id": item["callID"], "name": item["tool"], "input": arguments}
    return None


def _result(item: Json) -> Native:
    state = part(item, "state")
    said = {"completed": state.get("output"), "error": state.get("error")}.get(str(state.get("status")), INTERRUPTED)
    result = {"type": "tool_result", "tool_use_id": item["callID"], "content": str(said or "")}
    return result if state.get("status") == "completed" else {**result, "is_error": True}


def _usage(tokens: Json) -> Usage | None:
    """OpenCode does not include cached tokens in `input`, nor reasoning in `output`."""
    cached, written = count_of(part(tokens, "cache"), "read"), count_of(part(tokens, "cache"), "write")
    completion = count_of(tokens, "output") + count_of(tokens, "reasoning")
    return usage_of(count_of(tokens, "input") + cached + written, completion, cached, written)


CLIENTS = (
    Client(
        "opencode",
        programs=("opencode",),
        entry=Entry(
            "json",
            "mcp",
            lambda: settings_folder() / "opencode" / "opencode.json",
            lambda command: {"type": "local", "command": list(command), "enabled": True},
        ),
        files=Files(data_folder, current_sessions, databases=DATABASES, in_database=sessions_in_database),
        reader=lambda: READER,
        plugin=Plugin(
            "opencode.js",
            lambda: settings_folder() / "opencode" / "plugins" / "contextstash.js",
            "a plugin: above 100,000 tokens older messages leave each request for a hand-off",
        ),
    ),
)
