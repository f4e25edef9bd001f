"""Claude Code's transcripts: JSON lines below ~/.claude/projects, one file a session."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from contextstash.formats.usage import read_usage
from contextstash.hosts.transcript import Batch, Line, State, moment, text_of
from contextstash.service.transcripts import TranscriptMessage, TranscriptSession

REMEMBERED = 400
"""How many records back a parent is known; a rewind further back is not noticed."""

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


class ClaudeCodeReader:
    """Reads `user` and `assistant` records; sub-agents become child sessions."""

    name = "claude-code"

    def knows(self, lines: list[Line]) -> bool:
        return any("sessionId" in line.record or "leafUuid" in line.record for line in lines)

    def read(self, lines: Iterable[Line], state: State, source: str) -> list[Batch]:
        reading = _Reading(state, source)
        for line in lines:
            reading.take(line)
        return reading.batches()


class _Reading:
    """One pass over some lines. `parents` leads from each recent record to its parent; `spoken` says which of them
    were recorded, and whether as words (a reply or a prompt) rather than as a tool's answer."""

    def __init__(self, state: State, source: str) -> None:
        self._state = state
        self._source = source
        self._messages: list[tuple[str, TranscriptMessage]] = []
        self._cleared: list[str] = []
        self._parents: dict[str, str | None] = state.setdefault("parents", {})
        self._spoken: dict[str, bool] = state.setdefault("spoken", {})
        self._calls: dict[str, bool] = state.setdefault("calls", {})
        self._early: dict[str, tuple[str, TranscriptMessage]] = {}

    def take(self, line: Line) -> None:
        record = line.record
        self._note_session(record)
        kind = record.get("type")
        if kind in ("user", "assistant"):
            self._take_message(record)
        elif kind == "attachment":
            self._take_queued(record)
        elif record.get("subtype") == "microcompact_boundary":
            ids = (record.get("microcompactMetadata") or {}).get("compactedToolIds") or []
            self._cleared += [call_id for call_id in ids if isinstance(call_id, str)]
        if isinstance(uuid := record.get("uuid"), str):
            self._parents[uuid] = record.get("parentUuid") or record.get("logicalParentUuid")
            _forget_old(self._parents)

    def _note_session(self, record: dict[str, Any]) -> None:
        if "session" not in self._state:
            stem = Path(self._source).stem
            found = stem if _UUID.fullmatch(stem) else record.get("sessionId")
            if isinstance(found, str):
                self._state["session"] = _UNSAFE.sub("-", found)
        for name in ("customTitle", "aiTitle", "summary"):
            if record.get("type") in ("custom-title", "ai-title", "summary") and text_of(record.get(name)):
                self._state["title"] = record[name].strip()[:200]

    def _take_message(self, record: dict[str, Any]) -> None:
        body = record.get("message")
        if not isinstance(body, dict) or body.get("model") == "<synthetic>" or not body.get("content"):
            return
        reply = body if record["type"] == "assistant" else {}
        usage = reply.get("usage")
        message = TranscriptMessage(
            body=body,
            key=record.get("uuid"),
            group=reply.get("id"),
            usage=read_usage(usage) if isinstance(usage, dict) else None,
            model=reply.get("model"),
            created_at=moment(record.get("timestamp")),
            covers_before=bool(record.get("isCompactSummary")),
            rewind_to_key=self._rewind(record, body),
            cleared_call_ids=tuple(self._cleared),
        )
        self._cleared = []
        self._place(self._session_id(record), message, record)

    def _take_queued(self, record: dict[str, Any]) -> None:
        """A prompt typed while the agent worked reaches the model between two of its steps."""
        attachment = record.get("attachment")
        if not isinstance(attachment, dict) or attachment.get("type") != "queued_command":
            return
        if text := text_of(attachment.get("prompt")):
            body = {"role": "user", "content": [{"type": "text", "text": text}]}
            message = TranscriptMessage(body=body, key=record.get("uuid"), created_at=moment(record.get("timestamp")))
            self._place(self._session_id(record), message, record)

    def _session_id(self, record: dict[str, Any]) -> str:
        session = self._state.get("session") or _UNSAFE.sub("-", Path(self._source).stem)
        if not record.get("isSidechain"):
            return str(session)
        agent = record.get("agentId")
        return f"{_parent_of(record, session)}.{_UNSAFE.sub('-', agent) if isinstance(agent, str) else 'sidechain'}"

    def _place(self, session_id: str, message: TranscriptMessage, record: dict[str, Any]) -> None:
        """Put a message in its place: a result that was written before its call comes after it."""
        answered = _ids(message.body, "tool_result", "tool_use_id")
        missing = [call for call in answered if call not in self._calls]
        if missing:
            self._early[missing[0]] = (session_id, message)
        else:
            self._messages.append((session_id, message))
        for call in _ids(message.body, "tool_use", "id"):
            self._calls[call] = True
            if call in self._early:
                self._messages.append(self._early.pop(call))
        if isinstance(message.key, str) and not record.get("isSidechain"):
            self._spoken[message.key] = not answered
            self._state["last"] = message.key
        _forget_old(self._spoken)
        _forget_old(self._calls)

    def _rewind(self, record: dict[str, Any], body: dict[str, Any]) -> str | None:
        """The message a prompt goes back to, where it leaves a reply or a prompt behind; else None."""
        if record["type"] != "user" or record.get("isSidechain") or record.get("isCompactSummary"):
            return None
        if _ids(body, "tool_result", "tool_use_id"):
            return None
        target = self._recorded(record.get("parentUuid"))
        last = self._state.get("last")
        if target is None or last is None or target == last:
            return None
        left = self._path(last, target)
        return target if left is not None and any(self._spoken.get(uuid) for uuid in left) else None

    def _recorded(self, uuid: object) -> str | None:
        """The nearest recorded message at or above a record."""
        for _ in range(REMEMBERED):
            if not isinstance(uuid, str) or uuid in self._spoken:
                break
            uuid = self._parents.get(uuid)
        return uuid if isinstance(uuid, str) and uuid in self._spoken else None

    def _path(self, uuid: str, ancestor: str) -> list[str] | None:
        """The records from `uuid` up to `ancestor`, which is left out; None where it is no ancestor."""
        path: list[str] = []
        at: str | None = uuid
        while at is not None and at != ancestor and len(path) < REMEMBERED:
            path.append(at)
            at = self._parents.get(at)
        return path if at == ancestor else None

    def batches(self) -> list[Batch]:
        self._messages += self._early.values()
        found: list[Batch] = []
        for session_id, message in self._messages:
            if not found or found[-1].session.session_id != session_id:
                found.append(Batch(self._session(session_id), []))
            found[-1].messages.append(message)
        return found

    def _session(self, session_id: str) -> TranscriptSession:
        parent = session_id.rsplit(".", 1)[0] if "." in session_id else None
        return TranscriptSession(
            session_id=session_id,
            format="anthropic",
            agent="claude-code",
            title=None if parent else self._state.get("title"),
            source=self._source,
            parent_session_id=parent,
        )


def _parent_of(record: dict[str, Any], session: object) -> str:
    found = record.get("sessionId")
    return _UNSAFE.sub("-", found) if isinstance(found, str) else str(session)


def _ids(body: dict[str, Any], kind: str, field: str) -> list[str]:
    content = body.get("content")
    blocks = content if isinstance(content, list) else []
    return [
        block[field]
        for block in blocks
        if isinstance(block, dict) and block.get("type") == kind and isinstance(block.get(field), str)
    ]


def _forget_old(known: dict[str, Any]) -> None:
    while len(known) > REMEMBERED:
        del known[next(iter(known))]


def projects_folder(home: Path) -> Path:
    """Where Claude Code keeps its transcripts."""
    configured = os.environ.get("CLAUDE_CONFIG_DIR")
    return (Path(configured) if configured else home / ".claude") / "projects"


def current_transcript(project: Path, projects: Path) -> Path | None:
    """The transcript of a project's folder that was written last, None where there is none."""
    folder = projects / re.sub(r"[^A-Za-z0-9]", "-", str(project.absolute()))
    return newest_transcript(folder)


def newest_transcript(folder: Path) -> Path | None:
    """The session transcript in a folder that was written last; those of sub-agents don't count."""
    files = [file for file in folder.glob("*.jsonl") if not file.name.startswith("agent-") and file.is_file()]
    return max(files, key=lambda file: file.stat().st_mtime_ns, default=None)


def agent_transcripts(transcript: Path) -> list[Path]:
    """The files in which a session's sub-agents wrote theirs."""
    return sorted((transcript.parent / transcript.stem / "subagents").glob("agent-*.jsonl"))
