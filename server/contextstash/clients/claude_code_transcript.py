"""Claude Code's transcripts as messages: JSON lines whose records are a tree.

Prompts that the user types while the model works are queued (`queue-operation`): one is taken out either as the next
prompt (`dequeue`), which is then a record of its own, or given to the model amid a turn (`remove`). Newer versions
write an attachment then (2.1.179 does), older ones (2.1.80 and before) nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Literal

from contextstash.clients.transcripts import (
    Batch,
    Branch,
    Head,
    Json,
    Line,
    Placed,
    Reader,
    State,
    ids_of,
    moment,
    objects,
    part,
    remember,
    reminder,
    reported_usage,
    results_behind_calls,
    text_of,
    title_of,
)
from contextstash.record.transcript_records import TranscriptMessage, TranscriptSession, window_key

MAX_QUEUED = 50
"""Prompts that are remembered, far more than a user types ahead. This limit and the next one bound the reader's state,
which is stored with each reading."""

MAX_SIDECHAIN_RECORDS = 300
"""Records of sidechains that are remembered with the record that they descend from."""

NOTIFICATION = "<task-notification>"
"""How the client's own entries in the queue begin."""

SYNTHETIC = "<synthetic>"
"""The model of replies that Claude Code wrote itself, or built from what a mod returned."""

OUR_WINDOW = "[contextstash"
"""How the first message of a window begins that contextstash wrote for Claude Code."""

_COMMAND = ("<local-command-caveat>", "<command-name>/compact")
"""How the records of the user's own /compact begin, which come after those of the new window."""

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_TYPES = frozenset({"user", "assistant", "system", "attachment", "summary", "file-history-snapshot"})


class ClaudeCodeReader(Reader):
    """Reads `user` and `assistant` records; sub-agents become child sessions.

    Replies of the model `<synthetic>` are skipped: Claude Code wrote them itself, for example for a connection error.
    """

    name = "claude-code"

    def claims(self, head: Head) -> bool:
        return any(map(_is_ours, head.records))

    def read(self, lines: Iterable[Line], state: State, source: str) -> list[Batch]:
        reading = _Reading(state, source)
        for line in lines:
            reading.take(line.record)
        return reading.batches()


def _is_ours(record: Json) -> bool:
    if not isinstance(kind := record.get("type"), str):
        return False
    return "sessionId" in record or "leafUuid" in record or (kind in _TYPES and "messageId" in record)


class _Reading:
    """One pass over some records."""

    def __init__(self, state: State, source: str) -> None:
        self._state = state
        self._source = source
        self._messages: list[Placed] = []
        self._cleared: list[str] = state.setdefault("cleared", [])
        self._branch = Branch(state)
        self._roots: dict[str, str] = state.setdefault("roots", {})
        self._queue = _Queue(state)

    def take(self, record: Json) -> None:
        self._note_session(record)
        kind, subtype = record.get("type"), record.get("subtype")
        taken = False
        if kind in ("user", "assistant"):
            taken = self._take_message(record)
        elif kind == "attachment":
            taken = self._take_attachment(record)
        elif kind == "queue-operation":
            self._queue.note(record)
        elif subtype == "microcompact_boundary":
            self._cleared += _texts(part(record, "microcompactMetadata").get("compactedToolIds"))
        elif subtype == "compact_boundary":
            self._note_boundary(record)
        uuid = text_of(record.get("uuid"))
        if uuid and not taken and not record.get("isSidechain"):
            self._branch.passed(uuid, _parent(record))

    def _note_session(self, record: Json) -> None:
        if "session" not in self._state:
            stem = Path(self._source).stem
            found = stem if _UUID.fullmatch(stem) else text_of(record.get("sessionId"))
            if found:
                self._state["session"] = _UNSAFE.sub("-", found)
        if record.get("type") in ("custom-title", "ai-title", "summary"):
            for name in ("customTitle", "aiTitle", "summary"):
                if title := title_of(record.get(name)):
                    self._state["title"] = title

    def _note_boundary(self, record: Json) -> None:
        aside = record.get("isSidechain") is True
        if not aside:
            self._state["kept"] = self._kept(record)
        window = {"until": record.get("timestamp"), "after": self._state.get("latest"), "aside": aside, "begun": False}
        self._state["window"] = window

    def _kept(self, record: Json) -> dict[str, str]:
        """The messages that a compaction kept in addition to its summary: usually those after the summarized messages,
        but those before them if the user had the later part summarized. Newer versions list them, older versions name
        the first and the last. They stay at their place in the file."""
        segment = part(record, "compactMetadata", "preservedSegment")
        listed = part(record, "compactMetadata", "preservedMessages")
        uuids = [*_texts(segment.get("headUuid")), *_texts(listed.get("uuids")), *_texts(segment.get("tailUuid"))]
        kept = [uuid for uuid in uuids if not self._branch.is_passed(uuid)]
        if not kept:
            return {}
        if record.get("uuid") in (segment.get("anchorUuid"), listed.get("anchorUuid")):
            return {"covers_after_key": kept[-1]}
        return {"covers_before_key": kept[0]}

    def _take_message(self, record: Json) -> bool:
        body = part(record, "message")
        window = self._window_part(record, body)
        is_clients = body.get("model") == SYNTHETIC and window != "only"
        if is_clients or window == "repeated" or not body.get("content"):
            return False
        reply = body if record["type"] == "assistant" else {}
        if reply and not record.get("isSidechain"):
            given = self._queue.given_before(moment(record.get("timestamp")))
            self._messages += [(self._session_id(record), message) for message in given]
        summary = record.get("isCompactSummary") is True
        covers = summary or window == "first"
        if covers and not record.get("isSidechain"):
            self._branch.clear()
        message = TranscriptMessage(
            body=body,
            key=(_window_key(body) if window == "first" else None) or text_of(record.get("uuid")),
            group=text_of(reply.get("id")),
            usage=reported_usage(reply.get("usage")) if window is None else None,
            model=text_of(reply.get("model")) if reply.get("model") != SYNTHETIC else None,
            created_at=moment(record.get("timestamp")),
            covers_before=covers,
            rewind_to_key=self._rewind(record, body),
            cleared_call_ids=tuple(self._cleared),
            by_host=window == "first" or _is_by_host(record),
            **(self._state.pop("kept", {}) if summary else {}),
        )
        self._cleared.clear()
        self._place(message, record)
        return True

    def _window_part(self, record: Json, body: Json) -> Literal["first", "repeated", "only"] | None:
        """What a message is in the window that a mod returned for a compaction: all of it follows the boundary with new
        ids and with times up to the boundary's, and no message is marked as a summary (seen in 2.1.330). The `first`
        message stands for what left; the others are `repeated`, or, in the file of a fork, which begins with the
        boundary, the `only` copy there is. None if it is no part of such a window."""
        window = self._state.get("window")
        if window is None or (record.get("isSidechain") is True) != window["aside"]:
            return None
        time, until, after = (moment(each) for each in (record.get("timestamp"), window["until"], window["after"]))
        if record.get("isCompactSummary") is True or until is None or time is None or time > until:
            del self._state["window"]
            return None
        if after is not None and time > after and _text(body).lstrip().startswith(_COMMAND):
            return None
        if not window["begun"]:
            window["begun"] = True
            return "first"
        return "only" if after is None else "repeated"

    def _take_attachment(self, record: Json) -> bool:
        """Record what Claude Code added between two steps: a prompt typed while its model worked, or a file that
        changed meanwhile. The text that the model gets for other attachments is not in the transcript, so they are
        skipped. Returns whether a message was recorded."""
        attachment = part(record, "attachment")
        blocks = [] if self._is_repeated(record) else _attached(attachment)
        if blocks:
            is_prompt = attachment.get("type") == "queued_command"
            body = {"role": "user", "content": blocks}
            text = _text(body)
            if is_prompt:
                self._queue.attached(text)
            by_host = not is_prompt or text.startswith(NOTIFICATION)
            key, at = text_of(record.get("uuid")), moment(record.get("timestamp"))
            self._place(TranscriptMessage(body, key=key, created_at=at, by_host=by_host), record)
        return bool(blocks)

    def _is_repeated(self, record: Json) -> bool:
        """Whether an attachment belongs to a window that repeats what is recorded."""
        window = self._state.get("window") or {}
        time, until = moment(record.get("timestamp")), moment(window.get("until"))
        return bool(window.get("after") and time and until and time <= until)

    def _session_id(self, record: Json) -> str:
        session = self._state.get("session") or _UNSAFE.sub("-", Path(self._source).stem)
        if not record.get("isSidechain"):
            return str(session)
        parent = text_of(record.get("sessionId"))
        agent = text_of(record.get("agentId")) or self._root(record)
        return f"{_UNSAFE.sub('-', parent) if parent else session}.{_UNSAFE.sub('-', agent)}"

    def _root(self, record: Json) -> str:
        """A name for the sidechain of a record that names no agent: the first record that it descends from."""
        uuid, parent = text_of(record.get("uuid")) or "sidechain", _parent(record)
        root = self._roots.get(parent or "", uuid[:8])
        remember(self._roots, uuid, root, MAX_SIDECHAIN_RECORDS)
        return root

    def _rewind(self, record: Json, body: Json) -> str | None:
        """The message that this prompt rewinds to, if it abandons a reply or a prompt; else None."""
        is_prompt = record["type"] == "user" and not ids_of(body, "tool_result", "tool_use_id")
        return self._branch.prompted(_parent(record)) if is_prompt and not record.get("isSidechain") else None

    def _place(self, message: TranscriptMessage, record: Json) -> None:
        self._messages.append((self._session_id(record), message))
        if message.key and not record.get("isSidechain"):
            words = not ids_of(message.body, "tool_result", "tool_use_id")
            uuid = text_of(record.get("uuid")) or message.key
            self._branch.add(uuid, message.key, _parent(record), words=words)
        time, latest = message.created_at, moment(self._state.get("latest"))
        if time is not None and (latest is None or time > latest):
            self._state["latest"] = record["timestamp"]

    def batches(self) -> list[Batch]:
        found: list[Batch] = []
        for session_id, message in results_behind_calls(self._messages):
            if not found or found[-1].session.session_id != session_id:
                found.append(Batch(self._session(session_id), []))
            found[-1].messages.append(message)
        return found

    def _session(self, session_id: str) -> TranscriptSession:
        parent = session_id.rsplit(".", 1)[0] if "." in session_id else None
        title = None if parent else self._state.get("title")
        return TranscriptSession(
            session_id, "anthropic", "claude-code", title=title, source=self._source, parent_session_id=parent
        )


class _Queue:
    """The prompts that wait, and those that were given to the model and have no record of their own yet. Each is [text,
    time of its record]; of one that was given, the time at which it was."""

    def __init__(self, state: State) -> None:
        self._waiting: list[list[str]] = state.setdefault("waiting", [])
        self._given: list[list[str]] = state.setdefault("given", [])

    def note(self, record: Json) -> None:
        """Note one operation."""
        operation, text = record.get("operation"), text_of(record.get("content")) or ""
        time = text_of(record.get("timestamp")) or ""
        if operation == "enqueue":
            # An entry without a text, such as an image, is remembered too, since it is taken out like the others.
            self._waiting.append([text, time])
            del self._waiting[:-MAX_QUEUED]
        elif operation in ("dequeue", "remove") and self._waiting:
            # The client takes the user's own before its notifications, the oldest first.
            taken = min(self._waiting, key=lambda entry: entry[0].startswith(NOTIFICATION))
            self._waiting.remove(taken)
            if operation == "remove" and taken[0].strip():
                self._given.append([*taken, time])
                del self._given[:-MAX_QUEUED]
        elif operation in ("popOne", "popAll"):
            self._waiting[:] = [entry for entry in self._waiting if entry[0] != text]

    def attached(self, text: str) -> None:
        """Note that an entry has a record of its own."""
        self._given[:] = [entry for entry in self._given if entry[0] != text]

    def given_before(self, time: datetime | None) -> list[TranscriptMessage]:
        """The prompts that the model had been given when it replied at this time."""
        ready = [entry for entry in self._given if not (time and (given := moment(entry[2])) and given > time)]
        self._given[:] = [entry for entry in self._given if entry not in ready]
        return [
            TranscriptMessage(
                body={"role": "user", "content": [{"type": "text", "text": text}]},
                key=f"queued-{queued}",
                created_at=moment(queued),
                by_host=text.startswith(NOTIFICATION),
            )
            for text, queued, _ in ready
        ]


def _window_key(body: Json) -> str | None:
    """The key of the first message of a window that contextstash wrote, None for another's."""
    text = _text(body).strip()
    return window_key(text) if text.startswith(OUR_WINDOW) else None


def _is_by_host(record: Json) -> bool:
    """Whether Claude Code wrote a message in the user's role: an expanded command, a skill, a hook's feedback, or the
    notification of a task in the background."""
    origin = part(record, "origin").get("kind")
    return record.get("isMeta") is True or record.get("promptSource") == "system" or origin not in (None, "human")


def _parent(record: Json) -> str | None:
    return text_of(record.get("parentUuid")) or text_of(record.get("logicalParentUuid"))


def _attached(attachment: Json) -> list[Json]:
    """The content of an attachment that was sent to the model, if the transcript holds it."""
    if attachment.get("type") == "queued_command":
        prompt = attachment.get("prompt")
        if isinstance(prompt, list):
            return objects(prompt)
        return [{"type": "text", "text": prompt}] if text_of(prompt) else []
    if attachment.get("type") == "edited_text_file" and text_of(attachment.get("snippet")):
        note = f"{attachment.get('filename')} was changed meanwhile:\n{attachment['snippet']}"
        return [{"type": "text", "text": reminder(note)}]
    return []


def _text(body: Json) -> str:
    """The text of a message, the empty string if there is none."""
    content = body.get("content")
    return content if isinstance(content, str) else "\n".join(_texts([each.get("text") for each in objects(content)]))


def _texts(value: object) -> list[str]:
    """A string as a list, or the strings in a list."""
    return [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, str)]
