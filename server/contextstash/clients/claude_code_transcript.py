"""Claude Code's transcripts as messages: JSON lines whose records are a tree; a sub-agent has a file of its own.

A prompt that the user types while the model works is a record of its own if it is the next one, or an attachment
(`queued_command`) if it is given to the model amid a turn (2.1.179 and later). A file apart from contextstash.clients.
claude_code, because a hook runs after every tool call and needs nothing of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from contextstash.clients.fields import Json, ids_of, moment, objects, part, reported_usage, text_of, title_of
from contextstash.clients.transcripts import Branch, Line, Reader, State
from contextstash.record.transcript_records import TranscriptMessage, window_key
from contextstash.safety.sanitize import reminder

NOTIFICATION = "<task-notification>"
"""How the client's own entries among the queued prompts begin."""

SYNTHETIC = "<synthetic>"
"""The model of replies that Claude Code wrote itself, for example for a connection error, or built from what a mod
returned."""

OUR_WINDOW = "[contextstash"
"""How the first message of a window begins that contextstash wrote for Claude Code."""

_COMMAND = ("<local-command-caveat>", "<command-name>/compact")
"""How the records of the user's own /compact begin, which come after those of the new window."""

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")


def _said(lines: Iterable[Line], state: State, source: str) -> Iterator[TranscriptMessage]:
    """The messages of the session, or in the file of a sub-agent those of the sub-agent."""
    branch, stem = Branch(state), Path(source).stem
    for record in (line.record for line in lines):
        _note_session(record, state, stem)
        if (record.get("isSidechain") is True) != stem.startswith("agent-"):
            continue
        if record.get("subtype") == "compact_boundary":
            state["boundary"] = {"until": record.get("timestamp"), "after": state.get("latest")}
        message = _spoken(record, state, branch) or _attached(record, state)
        uuid = text_of(record.get("uuid"))
        if message is None:
            branch.passed(uuid, _parent(record))
            continue
        if message.key:
            words = not ids_of(message.body, "tool_result", "tool_use_id")
            branch.add(uuid or message.key, message.key, _parent(record), words=words)
        latest = moment(state.get("latest"))
        if message.created_at is not None and (latest is None or message.created_at > latest):
            state["latest"] = record["timestamp"]
        yield message


READER = Reader(
    "claude-code", "anthropic", lambda _, records: any({"type", "sessionId"} <= each.keys() for each in records), _said
)


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


def _spoken(record: Json, state: State, branch: Branch) -> TranscriptMessage | None:
    """A prompt, a reply, or results."""
    if record.get("type") not in ("user", "assistant"):
        return None
    body, time = part(record, "message"), moment(record.get("timestamp"))
    if record.get("requestSessionId") not in (None, record.get("sessionId")):
        # A fork begins with copies of replies that the other session asked for and was billed for (2.1.330).
        body = {name: value for name, value in body.items() if name != "usage"}
    window, is_own = _window_part(record, body, state), body.get("model") == SYNTHETIC
    if window == "repeated" or (is_own and window != "only") or not body.get("content"):
        return None
    reply = body if record["type"] == "assistant" else {}
    summary = record.get("isCompactSummary") is True
    is_prompt = not reply and not ids_of(body, "tool_result", "tool_use_id")
    key, text = text_of(record.get("uuid")), _text(body).strip()
    if window == "first" and text.startswith(OUR_WINDOW):
        key = window_key(text)
    if summary or window == "first":
        branch.clear()
    return TranscriptMessage(
        body=body,
        key=key,
        group=text_of(reply.get("id")),
        usage=reported_usage(reply.get("usage")) if window is None else None,
        model=None if is_own else text_of(reply.get("model")),
        created_at=time,
        covers_before=summary or window == "first",
        rewind_to_key=branch.rewound_to(_parent(record)) if is_prompt else None,
        by_host=window == "first" or _is_by_host(record),
    )


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


def _is_by_host(record: Json) -> bool:
    """Whether Claude Code wrote a message in the user's role: an expanded command, a skill, a hook's feedback, or the
    notification of a task in the background."""
    origin = part(record, "origin").get("kind")
    return record.get("isMeta") is True or record.get("promptSource") == "system" or origin not in (None, "human")


def _attached(record: Json, state: State) -> TranscriptMessage | None:
    """What Claude Code added between two steps: a prompt typed while its model worked, or a file that changed
    meanwhile. The text that the model gets for other attachments is not in the transcript, so they are skipped."""
    attachment = part(record, "attachment") if record.get("type") == "attachment" else {}
    kind, prompt, snippet = (attachment.get(name) for name in ("type", "prompt", "snippet"))
    blocks = objects(prompt) if kind == "queued_command" else []
    if kind == "queued_command" and text_of(prompt):
        blocks = [{"type": "text", "text": prompt}]
    elif kind == "edited_text_file" and text_of(snippet):
        blocks = [{"type": "text", "text": reminder(f"{attachment.get('filename')} was changed meanwhile:\n{snippet}")}]
    window = state.get("boundary") or {}
    time, until = moment(record.get("timestamp")), moment(window.get("until"))
    if not blocks or (window.get("after") and time and until and time <= until):  # a window repeats what is recorded
        return None
    body = {"role": "user", "content": blocks}
    by_host = kind != "queued_command" or _text(body).startswith(NOTIFICATION)
    return TranscriptMessage(body, key=text_of(record.get("uuid")), created_at=time, by_host=by_host)


def _parent(record: Json) -> str | None:
    return text_of(record.get("parentUuid")) or text_of(record.get("logicalParentUuid"))


def _text(body: Json) -> str:
    """The text of a message, the empty string if there is none."""
    content = body.get("content")
    texts = [content] if isinstance(content, str) else [each.get("text") for each in objects(content)]
    return "\n".join(each for each in texts if isinstance(each, str))
