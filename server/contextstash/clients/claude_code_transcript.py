"""Claude Code's transcripts as messages: JSON lines whose records are a tree; a sub-agent has a file of its own.

Prompts that the user types while the model works are queued (`queue-operation`): one is taken out either as the next
prompt (`dequeue`), which is then a record of its own, or given to the model amid a turn (`remove`). Newer versions
write an attachment then (2.1.179 does), older ones (2.1.80 and before) nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Literal

from contextstash.clients.transcripts import (
    Branch,
    Head,
    Json,
    Line,
    Reader,
    State,
    ids_of,
    moment,
    objects,
    part,
    reminder,
    reported_usage,
    text_of,
    title_of,
)
from contextstash.record.transcript_records import TranscriptMessage, window_key

MAX_QUEUED = 50
"""Prompts that are remembered, far more than a user types ahead. It bounds the reader's state."""

NOTIFICATION = "<task-notification>"
"""How the client's own entries in the queue begin."""

SYNTHETIC = "<synthetic>"
"""The model of replies that Claude Code wrote itself, for example for a connection error, or built from what a mod
returned."""

OUR_WINDOW = "[contextstash"
"""How the first message of a window begins that contextstash wrote for Claude Code."""

_COMMAND = ("<local-command-caveat>", "<command-name>/compact")
"""How the records of the user's own /compact begin, which come after those of the new window."""

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_TYPES = frozenset({"user", "assistant", "system", "attachment", "summary", "file-history-snapshot"})


def _claims(head: Head) -> bool:
    return any(map(_is_ours, head.records))


def _is_ours(record: Json) -> bool:
    if not isinstance(kind := record.get("type"), str):
        return False
    return "sessionId" in record or "leafUuid" in record or (kind in _TYPES and "messageId" in record)


def _said(lines: Iterable[Line], state: State, source: str) -> Iterator[TranscriptMessage]:
    """The messages of the session, or in the file of a sub-agent those of the sub-agent. Those of sub-agents within the
    session's own file, as versions before 2.0 wrote them, are skipped."""
    branch, is_agents = Branch(state), Path(source).stem.startswith("agent-")
    for record in (line.record for line in lines):
        _note_session(record, state, Path(source).stem)
        if (record.get("isSidechain") is True) != is_agents:
            continue
        found = False
        for message in _messages(record, state, branch):
            found = True
            yield message
        if not found and (uuid := text_of(record.get("uuid"))):
            branch.passed(uuid, _parent(record))


READER = Reader("claude-code", "anthropic", _claims, _said)


def _note_session(record: Json, state: State, stem: str) -> None:
    if "session" not in state and (named := text_of(record.get("sessionId"))):
        parent = _UNSAFE.sub("-", named)
        if stem.startswith("agent-"):
            agent = _UNSAFE.sub("-", text_of(record.get("agentId")) or stem.removeprefix("agent-"))
            state.update(session=f"{parent}.{agent}", parent=parent)
        else:
            state["session"] = stem if _UUID.fullmatch(stem) else parent
    if record.get("type") in ("custom-title", "ai-title", "summary"):
        for name in ("customTitle", "aiTitle", "summary"):
            state["title"] = title_of(record.get(name)) or state.get("title")


def _messages(record: Json, state: State, branch: Branch) -> Iterator[TranscriptMessage]:
    kind, subtype = record.get("type"), record.get("subtype")
    if kind in ("user", "assistant"):
        yield from _spoken(record, state, branch)
    elif kind == "attachment":
        yield from _attached(record, state, branch)
    elif kind == "queue-operation":
        _note_queue(record, state)
    elif subtype == "compact_boundary":
        after = state.get("latest")
        state.update(kept=_kept(record, branch), boundary={"until": record.get("timestamp"), "after": after})


def _kept(record: Json, branch: Branch) -> dict[str, str]:
    """The messages that a compaction kept in addition to its summary: usually those after the summarized messages, but
    those before them if the user had the later part summarized. They stay at their place in the file."""
    listed = part(record, "compactMetadata", "preservedMessages")
    uuids = _texts(listed.get("uuids")) if listed else []
    kept = [uuid for uuid in uuids if uuid in branch.path] or uuids
    if not kept:
        return {}
    return (
        {"covers_after_key": kept[-1]}
        if record.get("uuid") == listed.get("anchorUuid")
        else {"covers_before_key": kept[0]}
    )


def _spoken(record: Json, state: State, branch: Branch) -> Iterator[TranscriptMessage]:
    """A prompt, a reply, or results; before a reply what was typed ahead of it."""
    body, time = part(record, "message"), moment(record.get("timestamp"))
    if record.get("requestSessionId") not in (None, record.get("sessionId")):
        # A fork begins with copies of replies that the other session asked for and was billed for (2.1.330).
        body = {name: value for name, value in body.items() if name != "usage"}
    window, is_own = _window_part(record, body, state), body.get("model") == SYNTHETIC
    if window == "repeated" or (is_own and window != "only") or not body.get("content"):
        return
    reply = body if record["type"] == "assistant" else {}
    if reply:
        yield from _given_before(time, state)
    summary = record.get("isCompactSummary") is True
    is_prompt = not reply and not ids_of(body, "tool_result", "tool_use_id")
    if summary or window == "first":
        branch.clear()
    message = TranscriptMessage(
        body=body,
        key=(_window_key(body) if window == "first" else None) or text_of(record.get("uuid")),
        group=text_of(reply.get("id")),
        usage=reported_usage(reply.get("usage")) if window is None else None,
        model=None if is_own else text_of(reply.get("model")),
        created_at=time,
        covers_before=summary or window == "first",
        rewind_to_key=branch.rewound_to(_parent(record)) if is_prompt else None,
        by_host=window == "first" or _is_by_host(record),
        **(state.pop("kept", {}) if summary else {}),
    )
    yield _noted(message, record, state, branch)


def _noted(message: TranscriptMessage, record: Json, state: State, branch: Branch) -> TranscriptMessage:
    if message.key:
        words = not ids_of(message.body, "tool_result", "tool_use_id")
        branch.add(text_of(record.get("uuid")) or message.key, message.key, _parent(record), words=words)
    latest = moment(state.get("latest"))
    if message.created_at is not None and (latest is None or message.created_at > latest):
        state["latest"] = record["timestamp"]
    return message


def _window_part(record: Json, body: Json, state: State) -> Literal["first", "repeated", "only"] | None:
    """What a message is in the window that a mod returned for a compaction: all of it follows the boundary with new ids
    and with times up to the boundary's, and no message is marked as a summary (seen in 2.1.330). The `first` message
    stands for what left; the others are `repeated`, or, in the file of a fork, which begins with the boundary, the
    `only` copy there is. None if it is outside such a window."""
    window = state.get("boundary")
    if window is None:
        return None
    time, until, after = (moment(each) for each in (record.get("timestamp"), window["until"], window["after"]))
    if record.get("isCompactSummary") is True or until is None or time is None or time > until:
        del state["boundary"]
        return None
    if after is not None and time > after and _text(body).lstrip().startswith(_COMMAND):
        return None
    if "begun" not in window:
        window["begun"] = True
        return "first"
    return "only" if after is None else "repeated"


def _attached(record: Json, state: State, branch: Branch) -> Iterator[TranscriptMessage]:
    """What Claude Code added between two steps: a prompt typed while its model worked, or a file that changed
    meanwhile. The text that the model gets for other attachments is not in the transcript, so they are skipped."""
    attachment, time, window = part(record, "attachment"), moment(record.get("timestamp")), state.get("boundary") or {}
    blocks = _blocks_of(attachment)
    until = moment(window.get("until"))
    if not blocks or (window.get("after") and time and until and time <= until):  # a window repeats what is recorded
        return
    body = {"role": "user", "content": blocks}
    is_prompt, text = attachment.get("type") == "queued_command", _text(body)
    if is_prompt:
        state["given"] = [entry for entry in state.get("given", ()) if entry[0] != text]
    by_host = not is_prompt or text.startswith(NOTIFICATION)
    message = TranscriptMessage(body, key=text_of(record.get("uuid")), created_at=time, by_host=by_host)
    yield _noted(message, record, state, branch)


def _blocks_of(attachment: Json) -> list[Json]:
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


def _note_queue(record: Json, state: State) -> None:
    """Note an operation on the queue. In the state, `waiting` are the prompts that wait, and `given` those that were
    given to the model and have no record of their own yet; each is [text, time of its record], of one that was given
    also the time at which it was."""
    waiting: list[list[str]] = state.setdefault("waiting", [])
    operation, text = record.get("operation"), text_of(record.get("content")) or ""
    time = text_of(record.get("timestamp")) or ""
    if operation == "enqueue":
        # An entry without a text, such as an image, is remembered too, since it is taken out like the others.
        state["waiting"] = [*waiting, [text, time]][-MAX_QUEUED:]
    elif operation in ("dequeue", "remove") and waiting:
        # The client takes the user's own before its notifications, the oldest first.
        taken = min(waiting, key=lambda entry: entry[0].startswith(NOTIFICATION))
        waiting.remove(taken)
        if operation == "remove" and taken[0].strip():
            state["given"] = [*state.get("given", ()), [*taken, time]][-MAX_QUEUED:]
    elif operation in ("popOne", "popAll"):
        state["waiting"] = [entry for entry in waiting if entry[0] != text]


def _given_before(time: datetime | None, state: State) -> Iterator[TranscriptMessage]:
    """The prompts that the model had been given when it replied at this time."""
    given: list[list[str]] = state.get("given", [])
    ready = [entry for entry in given if not (time and (at := moment(entry[2])) and at > time)]
    state["given"] = [entry for entry in given if entry not in ready]
    for text, queued, _ in ready:
        body = {"role": "user", "content": [{"type": "text", "text": text}]}
        by_host = text.startswith(NOTIFICATION)
        yield TranscriptMessage(body, key=f"queued-{queued}", created_at=moment(queued), by_host=by_host)


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


def _text(body: Json) -> str:
    """The text of a message, the empty string if there is none."""
    content = body.get("content")
    return content if isinstance(content, str) else "\n".join(_texts([each.get("text") for each in objects(content)]))


def _texts(value: object) -> list[str]:
    """A string as a list, or the strings in a list."""
    return [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, str)]
