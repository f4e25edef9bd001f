"""Records as Claude Code writes them to its transcripts."""

from __future__ import annotations

import json
from typing import Any

SESSION = "5b1f6c1e-0000-4000-8000-000000000001"

Record = dict[str, Any]


def record(kind: str, uuid: str, parent: str | None, content: Any, **more: Any) -> Record:
    """A message below its parent; `more` overrides the fields of the record."""
    message = {"role": kind, "content": content}
    if kind == "assistant":
        message = {"id": f"msg_{uuid}", "type": "message", "model": "claude-sonnet-4-5", **message}
    return {
        "parentUuid": parent,
        "isSidechain": False,
        "sessionId": SESSION,
        "type": kind,
        "message": message,
        "uuid": uuid,
        "timestamp": "2026-03-03T09:00:00.000Z",
        **more,
    }


def prompt(uuid: str, parent: str | None, text: str, **more: Any) -> Record:
    return record("user", uuid, parent, text, **more)


def reply(uuid: str, parent: str | None, text: str, **more: Any) -> Record:
    return record("assistant", uuid, parent, [{"type": "text", "text": text}], **more)


def call(uuid: str, parent: str, call_id: str) -> Record:
    block = {"type": "tool_use", "id": call_id, "name": "Bash", "input": {"command": "ls"}}
    return record("assistant", uuid, parent, [block])


def result(uuid: str, parent: str, call_id: str, text: str = "done") -> Record:
    return record("user", uuid, parent, [{"type": "tool_result", "tool_use_id": call_id, "content": text}])


def passed(uuid: str, parent: str | None, **more: Any) -> Record:
    return {"type": "progress", "uuid": uuid, "parentUuid": parent, "sessionId": SESSION, **more}


def summary(uuid: str, covered: str) -> list[Record]:
    boundary = {"type": "system", "subtype": "compact_boundary", "logicalParentUuid": covered}
    return [
        passed(f"{uuid}-boundary", None, **boundary),
        prompt(uuid, f"{uuid}-boundary", "Summary of it all", isCompactSummary=True),
    ]


def compacted(uuid: str, covered: str, *kept: str, before: bool = False) -> list[Record]:
    """A compaction that kept these messages; `before` its summary, or else after it."""
    boundary, message = summary(uuid, covered)
    listed = {"anchorUuid": boundary["uuid"] if before else message["uuid"], "uuids": kept}
    return [{**boundary, "compactMetadata": {"trigger": "auto", "preservedMessages": listed}}, message]


def as_lines(records: list[Record]) -> bytes:
    return b"".join(json.dumps(item).encode() + b"\n" for item in records)
