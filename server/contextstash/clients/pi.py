"""pi: its files, its MCP entry, and its sessions as Anthropic messages.

A session's file is a tree of entries, one JSON line each, with messages in a format of its own. Entries as in
badlogic/pi-mono, packages/coding-agent/docs/session.md and src/core/session-manager.ts.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextstash.clients.client import Client, Entry, Files, Plugin, plain
from contextstash.clients.current import newest_first, paths_of, recent
from contextstash.clients.fields import Json, count_of, moment, objects, part, text_of, title_of, usage_of
from contextstash.clients.transcripts import Branch, Line, Reader, State
from contextstash.record.transcript_records import TranscriptMessage, window_key
from contextstash.safety.sanitize import MARKER

if TYPE_CHECKING:
    from contextstash_storage.records import Native, Usage

COMPACTED = "The conversation before this was compacted. Its summary:\n\n"
LEFT = "Another branch of this conversation was left. Its summary:\n\n"


def _said(lines: Iterable[Line], state: State, source: str) -> Iterator[TranscriptMessage]:
    """Messages as Anthropic messages, without loss: pi keeps one format for all providers.

    An entry whose parent is not the last entry rewinds the conversation to that parent. A compaction's summary covers
    all before the first entry that it kept (in files of pi's first version, whose entries have no ids, it covers
    everything before it). Not kept: the private data of extensions, labels, and commands that the user excluded from
    the context.
    """
    branch = Branch(state)
    for line in lines:
        entry = line.record
        if entry.get("type") == "session" and text_of(entry.get("id")):
            state.setdefault("session", entry["id"])
        elif entry.get("type") == "session_info" and title_of(entry.get("name")):
            state["title"] = title_of(entry["name"])
        own, parent = text_of(entry.get("id")), text_of(entry.get("parentId"))
        found = _message(line, branch)
        if found is None:
            if own and entry.get("type") != "session":
                branch.passed(own, parent)
            continue
        if own:
            found = replace(found, rewind_to_key=branch.rewound_to(parent))
            branch.add(own, str(found.key), parent)
        yield found


READER = Reader(
    "pi",
    "anthropic",
    lambda _, records: any(each.get("type") == "session" and "cwd" in each for each in records),
    _said,
)


def _message(line: Line, branch: Branch) -> TranscriptMessage | None:
    entry = line.record
    if (body := _body(entry)) is None:
        return None
    message = entry["message"] if entry.get("type") == "message" else {}
    reply = message.get("role") == "assistant"
    compacts = entry.get("type") == "compaction"
    # A compaction that our plugin gave was recorded then, by this key.
    ours = window_key(entry["summary"]) if compacts and entry["summary"].startswith(MARKER) else None
    return TranscriptMessage(
        body=body,
        key=ours or text_of(entry.get("id")) or line.digest,
        usage=_usage(part(message, "usage")) if reply else None,
        model=text_of(message.get("model")) if reply else None,
        created_at=moment(entry.get("timestamp")),
        covers_before=compacts,
        by_host=body["role"] == "user" and message.get("role") not in ("user", "toolResult"),
        covers_before_key=branch.first_from(text_of(entry.get("firstKeptEntryId"))) if compacts else None,
    )


def _body(entry: Json) -> Native | None:
    kind = entry.get("type")
    if kind == "message" and isinstance(entry.get("message"), dict):
        return _converted(entry["message"])
    if kind == "custom_message":
        return _converted({"role": "custom", "content": entry.get("content")})
    if kind in ("compaction", "branch_summary") and text_of(entry.get("summary")):
        opening = COMPACTED if kind == "compaction" else LEFT
        return {"role": "user", "content": [{"type": "text", "text": opening + entry["summary"]}]}
    return None


def _converted(message: Json) -> Native | None:
    role = message.get("role")
    if role == "bashExecution":  # a command that the user ran
        exited = f"\nIt exited with code {message['exitCode']}." if message.get("exitCode") else ""
        text = f"Ran `{message.get('command')}`\n```\n{message.get('output') or ''}\n```{exited}"
        body = {"role": "user", "content": [{"type": "text", "text": text}]}
        return None if message.get("excludeFromContext") else body
    if not message.get("content"):
        return None
    content = message["content"]
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    blocks = [_block(block) for block in objects(content)]
    if role != "toolResult":
        return {"role": "user" if role in ("custom", "hookMessage") else role, "content": blocks}
    result = {"type": "tool_result", "tool_use_id": message.get("toolCallId"), "content": blocks}
    if message.get("isError"):
        result["is_error"] = True
    return {"role": "user", "content": [result]}


def _block(block: dict[str, Any]) -> dict[str, Any]:
    kind = block.get("type")
    if kind == "toolCall":
        arguments = block.get("arguments") or {}
        return {"type": "tool_use", "id": block.get("id"), "name": block.get("name"), "input": arguments}
    if kind == "thinking":
        thinking = {"type": "thinking", "thinking": block.get("thinking", "")}
        return {**thinking, "signature": block["thinkingSignature"]} if block.get("thinkingSignature") else thinking
    if kind == "image" and "data" in block:
        source = {"type": "base64", "media_type": block.get("mimeType", "image/png"), "data": block["data"]}
        return {"type": "image", "source": source}
    return block


def _usage(usage: Json) -> Usage | None:
    cached, written = count_of(usage, "cacheRead"), count_of(usage, "cacheWrite")
    return usage_of(count_of(usage, "input") + cached + written, count_of(usage, "output"), cached, written)


def agent_folder(*names: str) -> Path:
    """A place in pi's own folder."""
    return Path(os.environ.get("PI_CODING_AGENT_DIR") or Path.home() / ".pi" / "agent", *names).expanduser()


def current_sessions(folder: Path, project: Path, _: Mapping[str, Any]) -> list[list[Path]]:
    """The newest sessions of this project. Our extension tells the calls of its windows apart."""
    for path in paths_of(project):
        place = folder / f"--{path.lstrip('/').translate(str.maketrans('/:', '--'))}--"
        if found := newest_first(place.glob("*.jsonl"), place):
            return [[each] for each in recent(found)]
    return []


CLIENTS = (
    Client(
        "pi",
        programs=("pi", "pi-coding-agent"),
        # Its docs/mcp.md: tools that are not `direct` are found by scripts alone.
        entry=Entry(
            "json",
            "mcpServers",
            lambda: agent_folder("mcp.json"),
            lambda command: {**plain(command), "exposure": "direct"},
        ),
        files=Files(lambda: agent_folder("sessions"), current_sessions),
        reader=lambda: READER,
        plugin=Plugin(
            "pi.js",
            lambda: agent_folder("extensions", "contextstash.js"),
            "an extension: pi's compactions are answered by a hand-off",
        ),
    ),
)
