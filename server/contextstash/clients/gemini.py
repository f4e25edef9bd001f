"""Gemini CLI: its files, its MCP entry, its hooks, and its recordings as contents of Gemini's API.

Formats as in google-gemini/gemini-cli, packages/core/src/services/chatRecordingTypes.ts and chatRecordingService.ts:
`chats/session-*.jsonl` has a head, a line for each message (repeated if it changed), `{"$set": …}` and
`{"$rewindTo": id}`. Checkpoints (`/chat save`, and those of tool calls)
hold a list of contents in the format of Gemini's API, which contextstash.clients.follow reads. Hooks as in its
reference of hooks, and as its version 0.61 handles their responses.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from contextstash.base.files import open_regular, read_regular
from contextstash.clients.client import Client, Entry, Files, Hooks, TextPath, below
from contextstash.clients.current import newest_first, paths_of, recent
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
from contextstash.clients.transcripts import Line, Reader, State, split_lines
from contextstash.record.transcript_records import TranscriptMessage

UNFINISHED = ("validating", "scheduled", "awaiting_approval", "executing")
"""The states of calls that have no result yet (packages/core/src/scheduler/types.ts)."""


def _said(lines: Iterable[Line], state: State, source: str) -> Iterator[TranscriptMessage]:
    """All messages of a recording: a reply, then each of its calls with its result. A last reply with unfinished calls
    is read when they are finished.

    Not kept: a branch that a rewind left before it was read, which calls were made together, thought signatures, how
    the terminal displayed a result, messages of Gemini CLI itself (`info`, `error`), and the reply that it adds after a
    summary.
    """
    head: Json = {}
    records: dict[str, Json] = {}
    summaries: dict[str, str | None] = {}
    for line in lines:
        _take(line.record, head, records, summaries)
    state.update(session=text_of(head.get("sessionId")), title=title_of(head.get("summary")))
    if head.get("kind") == "subagent":
        state["parent"] = Path(source).parent.name
    last = next(reversed(records), None)
    first_keys: dict[str, str | None] = {}
    for key, record in records.items():
        if key == last and any(call.get("status") in UNFINISHED for call in objects(record.get("toolCalls"))):
            return
        for message in _messages(record):
            first_keys.setdefault(key, message.key)
            if key in summaries:
                kept = first_keys.get(summaries[key] or "")
                message = replace(message, covers_before=True, covers_before_key=kept)
            yield message


READER = Reader(
    "gemini",
    "gemini",
    lambda _, records: any({"sessionId", "projectHash"} <= each.keys() for each in records[:3]),
    _said,
    lambda path: [line.record for line in split_lines(read_regular(path), at_end=True)[0]],
)


def _take(record: Json, head: Json, records: dict[str, Json], summaries: dict[str, str | None]) -> None:
    """Apply a line to what is known of the recording: its head, its records by id, and of those that are summaries the
    first record that they kept."""
    given = record["$set"] if isinstance(record.get("$set"), dict) else record
    if text_of(record.get("$rewindTo")):
        ids = list(records)  # to before this message; to the beginning if it does not exist
        for gone in ids[ids.index(record["$rewindTo"]) if record["$rewindTo"] in ids else 0 :]:
            del records[gone]
    elif given is record and text_of(record.get("id")):
        records[record["id"]] = record
    elif given is not record or "sessionId" in record:
        head |= {name: value for name, value in given.items() if name != "messages" and value is not None}
        if isinstance(given.get("messages"), list):
            rebuilt = [each for each in objects(given["messages"]) if text_of(each.get("id"))]
            _rebuild(rebuilt, records, summaries)


def _rebuild(rebuilt: list[Json], records: dict[str, Json], summaries: dict[str, str | None]) -> None:
    """The history as Gemini CLI rebuilt it. Known messages keep their first version, because Gemini CLI may have masked
    them since. If the beginning was removed, one of the first new messages is its summary."""
    ids = [record["id"] for record in rebuilt]
    before = list(records)
    known = next((place for place, found in enumerate(ids) if found in before), len(ids))
    forgotten = before[: before.index(ids[known])] if known < len(ids) else before
    asked = [record for record in rebuilt[:known] if record.get("type") == "user"]
    if asked and not set(forgotten) <= set(ids):
        summary = next((record for record in asked if "<state_snapshot>" in json.dumps(record)), asked[-1])
        summaries[summary["id"]] = ids[known] if known < len(ids) else None
        records[summary["id"]] = summary
    for record in rebuilt[known:] if before else rebuilt:
        if record["id"] not in before:
            records[record["id"]] = record


def _messages(record: Json) -> Iterator[TranscriptMessage]:
    """The messages of a record, as contents of Gemini's API. The results of calls are stored with the calls."""
    parts, time, key = _parts(record.get("content")), moment(record.get("timestamp")), record["id"]
    if record.get("type") == "user" and parts:
        yield TranscriptMessage({"role": "user", "parts": parts}, key=key, created_at=time)
    if record.get("type") != "gemini":
        return
    calls = [call for call in objects(record.get("toolCalls")) if text_of(call.get("id")) and text_of(call.get("name"))]
    thoughts = [{"text": text, "thought": True} for each in objects(record.get("thoughts")) if (text := _thought(each))]
    # `input` is the whole prompt; `thoughts` are not included in `output`.
    prompt, output, cached, thought = (
        count_of(part(record, "tokens"), name) for name in ("input", "output", "cached", "thoughts")
    )
    about: dict[str, Any] = {"usage": usage_of(prompt, output + thought, cached), "model": text_of(record.get("model"))}
    if parts or (thoughts and not calls):
        yield TranscriptMessage({"role": "model", "parts": [*thoughts, *parts]}, key=key, created_at=time, **about)
        about["usage"], thoughts = None, []
    for call in calls:
        called = {"functionCall": {"id": call["id"], "name": call["name"], "args": part(call, "args")}}
        body = {"role": "model", "parts": [*thoughts, called]}
        yield TranscriptMessage(body, key=f"{key}#{call['id']}", created_at=time, **about)
        about["usage"], thoughts = None, []
        if result := call.get("result"):
            body = {"role": "user", "parts": result if isinstance(result, list) else [result]}
            yield TranscriptMessage(body, key=f"{key}#{call['id']}=", created_at=moment(call.get("timestamp")))


def _parts(content: object) -> list[Json]:
    """A text, a part, or a list of them, as parts."""
    items = content if isinstance(content, list) else [content]
    parts = [{"text": item} if isinstance(item, str) else item for item in items if isinstance(item, str | dict)]
    return [each for each in parts if each.get("text") != "" and not {"functionResponse", "functionCall"} & each.keys()]


def _thought(thought: Json) -> str:
    subject, description = text_of(thought.get("subject")), text_of(thought.get("description"))
    return "\n".join(filter(None, (f"**{subject}**" if subject else None, description)))


def current_sessions(folder: Path, project: Path, _: Mapping[str, Any]) -> list[list[Path]]:
    """The newest recordings of this project, each with those of its sub-agents. They are in a folder with the
    project's short name (packages/core/src/config/projectRegistry.ts). Nothing that Gemini CLI (0.61) sends with a call
    or gives its servers tells its windows apart."""
    file = folder / "projects.json"
    registry = parse_document(read_regular(file)) if file.is_file() else None
    names = [str(part(registry, "projects").get(path)) for path in paths_of(project)]
    chats = folder / "tmp" / next((each for each in names if re.fullmatch(r"[a-z0-9-]+", each)), "none") / "chats"
    found = []
    for recording in recent(newest_first(chats.glob("session-*.jsonl"), chats)):
        with open_regular(recording) as opened:  # its head comes first
            session = re.search(rb'"sessionId"\s*:\s*"([A-Za-z0-9._-]+)"', opened.read(4096))
        below = (chats / session[1].decode()).glob("*.jsonl") if session else ()
        found.append([recording, *newest_first(below, chats)])
    return found


NOT_AN_ERROR = "This is no error: the tool did its work, and its output is too long to be shown whole. In part:\n"


def text_paths(_: str, response: Any) -> list[TextPath]:
    """The paths of the texts in a response's content for the model; none if it is an error, or if any part is not
    text."""
    content = response.get("llmContent") if isinstance(response, dict) and not response.get("error") else None
    if isinstance(content, str):
        return [("llmContent",)]
    parts = list(enumerate(content)) if isinstance(content, list) else [(0, content)]
    own: list[TextPath] = [(place,) if isinstance(part, str) else (place, "text") for place, part in parts]
    is_text = all(isinstance(part, str) or (isinstance(part, dict) and list(part) == ["text"]) for _, part in parts)
    return [("llmContent", *path) for path in own] if is_text else []


def replacement(_: Any, texts: Sequence[str]) -> dict[str, Any]:
    """The hook's response. No field of it replaces an output: a decision `deny` shows its reason in its place, as an
    error."""
    return {"decision": "deny", "reason": NOT_AN_ERROR + "\n".join(texts)}


_SETTINGS = below(".gemini", "settings.json")

CLIENTS = (
    Client(
        "gemini",
        programs=("gemini", "gemini-cli"),
        entry=Entry("json", "mcpServers", _SETTINGS),
        files=Files(lambda: Path(os.environ.get("GEMINI_CLI_HOME") or Path.home()) / ".gemini", current_sessions),
        reader=lambda: READER,
        # It fires PreCompress before every turn, also if it then compresses nothing, and starts no new session after a
        # compression: at none of its events could a compressed session be given a hand-off.
        hooks=Hooks(
            ("AfterTool", "SessionEnd"),
            timeout=30_000,
            file=_SETTINGS,
            after_tool="AfterTool",
            mcp_prefix="mcp_",
            text_paths=text_paths,
            replacement=replacement,
            # A file is read to be worked with, so it is cut only if it is very long, as for Claude Code.
            limits={"read_file": 40_000, "read_many_files": 40_000},
        ),
        continued=lambda program, message: (program, "--prompt-interactive", message),
    ),
)
