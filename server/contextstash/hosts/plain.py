"""Plain files of messages: a JSON list, an object that holds one, or JSON lines.

Objects are provider requests (`messages`, `input`) and trajectories of SWE-agent (`history`; its types.py). Cline and
Roo Code keep an Anthropic message list for each task (`api_conversation_history.json` in the task's folder).
"""

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
        session = TranscriptSession(
            session_id=plain_session_id(source), format=state["format"], agent=_agent_of(Path(source))
        )
        messages = [
            TranscriptMessage(body=line.record, key=f"{place}-{line.mark}") for place, line in enumerate(lines, start)
        ]
        return [Batch(session, messages)]


TASK_FILE = "api_conversation_history.json"
TRAJECTORY = ".traj"


def _agent_of(path: Path) -> str | None:
    """Which agent keeps such a file."""
    if path.name == TASK_FILE:
        return "roo-code" if any("roo-c" in part.lower() for part in path.parts) else "cline"
    return "swe-agent" if path.suffix == TRAJECTORY else None


def plain_session_id(source: str) -> str:
    """A session id made of the file's name, or its task's, and, to tell files of one name apart, its place."""
    path = Path(source)
    name = f"task-{path.parent.name}" if path.name == TASK_FILE else path.stem
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-")[:80] or "session"
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
        document = _messages_in(document)
    if not isinstance(document, list) or not all(isinstance(item, dict) for item in document):
        return None
    return [Line(item, mark_of(json.dumps(item).encode())) for item in document]


def _messages_in(document: dict[str, Any]) -> list[Any] | None:
    """The messages of a request or a trajectory, the system prompt that stands beside them first."""
    for key, prompt in (("messages", "system"), ("input", "instructions")):
        if isinstance(document.get(key), list):
            system = document.get(prompt)
            head = [{"role": "system", "content": system}] if system else []
            return [*head, *document[key]]
    if isinstance(document.get("history"), list) and "trajectory" in document:
        return [_with_call_id(item) for item in document["history"]]
    return None


def _with_call_id(item: Any) -> Any:
    """SWE-agent names the calls that a result answers in a list, of which there is one."""
    ids = item.get("tool_call_ids") if isinstance(item, dict) else None
    if not isinstance(ids, list) or not ids or item.get("role") != "tool":
        return item
    return {**{key: value for key, value in item.items() if key != "tool_call_ids"}, "tool_call_id": ids[0]}
