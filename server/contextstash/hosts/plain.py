"""Plain files of messages: a JSON list, an object with `messages`, or JSON lines."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from contextstash.formats import detect_format
from contextstash.hosts.transcript import Batch, Line, State, mark_of
from contextstash.service.transcripts import TranscriptMessage, TranscriptSession
from contextstash_storage.errors import BadMessageError


class PlainReader:
    """Reads provider messages as they are. A message's key is its position in the file and what it says, so that
    a list that grew adds its new messages alone, and one that was rewritten loses none."""

    name = "messages"

    def knows(self, lines: list[Line]) -> bool:
        try:
            detect_format([line.record for line in lines])
        except BadMessageError:
            return False
        return True

    def read(self, lines: Iterable[Line], state: State, source: str) -> list[Batch]:
        lines = list(lines)
        if not lines:
            return []
        start = state.get("count", 0)
        state["count"] = start + len(lines)
        state.setdefault("format", detect_format([line.record for line in lines]))
        session = TranscriptSession(session_id=plain_session_id(source), format=state["format"])
        messages = [
            TranscriptMessage(body=line.record, key=f"{place}-{line.mark}") for place, line in enumerate(lines, start)
        ]
        return [Batch(session, messages)]


def plain_session_id(source: str) -> str:
    """A session id made of the file's name and, to tell files of one name apart, its place."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(source).stem).strip("-")[:80] or "session"
    return f"{stem}-{hashlib.sha256(source.encode('utf-8', 'surrogatepass')).hexdigest()[:6]}"


def whole_document(data: bytes) -> list[Line] | None:
    """The messages of a file that is one JSON document; None where it is not one."""
    if data.lstrip()[:1] not in (b"[", b"{"):
        return None
    try:
        document: Any = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if isinstance(document, dict):
        document = _with_system(document) if isinstance(document.get("messages"), list) else None
    if not isinstance(document, list) or not all(isinstance(item, dict) for item in document):
        return None
    return [Line(item, mark_of(json.dumps(item).encode())) for item in document]


def _with_system(document: dict[str, Any]) -> list[Any]:
    system = document.get("system")
    head = [{"role": "system", "content": system}] if system else []
    return [*head, *document["messages"]]
