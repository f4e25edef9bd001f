"""Plain files of messages: JSON lines, or one JSON document: a list, or a provider request that holds one."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from contextstash.formats import detect_format
from contextstash.hosts.readers.documents import DocumentReader, Json, load_document, objects, unseen
from contextstash.hosts.readers.transcript import Batch, Line, State
from contextstash.service.recording.transcript_records import TranscriptMessage, TranscriptSession
from contextstash_storage.errors import BadMessageError

CHECKPOINTS = ("history", "clientHistory")
"""The fields of Gemini CLI's checkpoints, of `/chat save` and of tool calls, that hold contents."""


class PlainReader:
    """Reads lines of provider messages as they are. A message's key is its position in the file and its digest."""

    name = "messages"

    def knows(self, lines: list[Line]) -> bool:
        return _are_messages([line.record for line in lines])

    def read(self, lines: Iterable[Line], state: State, source: str) -> list[Batch]:
        lines = list(lines)
        if not lines:
            return []
        start = state.get("count", 0)
        state["count"] = start + len(lines)
        state.setdefault("format", detect_format([line.record for line in lines]))
        return [Batch(_session(source, state), _messages(lines, start))]


class PlainDocumentReader(DocumentReader):
    """Reads a list of provider messages as they are. If the list grew, only its new messages are added. If its last
    messages were replaced, the view holds the new ones, and the old ones stay in the history."""

    name = "messages"

    def claims(self, path: Path, document: object) -> bool:
        return _are_messages(_messages_of(document))

    def records(self, path: Path) -> list[Json]:
        return _messages_of(load_document(path))

    def read(self, lines: Iterable[Line], state: State, source: str) -> list[Batch]:
        lines = list(lines)
        if not lines:
            return []
        state.setdefault("format", detect_format([line.record for line in lines]))
        fresh = unseen(_messages(lines, 0), state)
        return [Batch(_session(source, state), fresh)] if fresh else []


def plain_session_id(source: str) -> str:
    """A session id made of the file's name and a hash of its path, which distinguishes files with the same name."""
    return named_session_id(Path(source).stem, source)


def named_session_id(name: str, source: str) -> str:
    """A session id made of a name and a hash of the source, which distinguishes sessions with the same name."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-")[:80] or "session"
    return f"{stem}-{hashlib.sha256(source.encode('utf-8', 'surrogatepass')).hexdigest()[:6]}"


def _are_messages(records: Sequence[Json]) -> bool:
    try:
        detect_format(records)
    except BadMessageError:
        return False
    return True


def _messages(lines: Sequence[Line], start: int) -> list[TranscriptMessage]:
    return [
        TranscriptMessage(body=line.record, key=f"{place}-{line.digest}") for place, line in enumerate(lines, start)
    ]


def _session(source: str, state: State) -> TranscriptSession:
    agent = "gemini" if state["format"] == "gemini" else None
    return TranscriptSession(session_id=plain_session_id(source), format=state["format"], agent=agent)


def _messages_of(document: object) -> list[Json]:
    """The messages of a document; none if it does not hold a list of messages."""
    if isinstance(document, dict):
        document = _messages_in(document)
    found = objects(document)
    return found if isinstance(document, list) and len(found) == len(document) else []


def _messages_in(document: Json) -> list[Any] | None:
    """The messages of a request, with the system prompt as the first one."""
    for key, prompt in (("messages", "system"), ("input", "instructions")):
        if isinstance(document.get(key), list):
            system = document.get(prompt)
            head = [{"role": "system", "content": system}] if system else []
            return [*head, *document[key]]
    if isinstance(document.get("contents"), list):
        instruction = document.get("systemInstruction") or document.get("system_instruction")
        parts = instruction.get("parts") if isinstance(instruction, dict) else None
        return [*([{"role": "system", "parts": parts}] if parts else []), *document["contents"]]
    return next((found for key in CHECKPOINTS if isinstance(found := document.get(key), list)), None)
