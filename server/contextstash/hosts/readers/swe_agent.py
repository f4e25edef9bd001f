"""SWE-agent's trajectories (`.traj`): one JSON object with `history` and `trajectory`.

Formats as in SWE-agent/SWE-agent, docs/usage/trajectories.md and sweagent/types.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from contextstash.hosts.readers.documents import Conversation, DocumentReader, Json, load_document, objects, part
from contextstash.hosts.readers.plain import plain_session_id
from contextstash.hosts.readers.transcript import Line, text_of
from contextstash.service.recording.transcript_records import TranscriptMessage, TranscriptSession
from contextstash_storage.records import Native


class SweAgentReader(DocumentReader):
    """Reads the history, whose messages are OpenAI's; if it is missing, the response and the observation of each step.

    Not kept: the environment's state, and which messages were shortened for a single prompt. Usage is reported for the
    whole run only, so none is recorded.
    """

    name = "swe-agent"

    def claims(self, path: Path, document: object) -> bool:
        steps = objects(document.get("trajectory")) if isinstance(document, dict) else []
        return bool(steps) and {"action", "observation"} <= steps[0].keys()

    def records(self, path: Path) -> list[Json]:
        document = part({"": load_document(path)}, "")
        return objects(document.get("history")) or list(_history_of(objects(document.get("trajectory"))))

    def conversation(self, lines: list[Line], source: str) -> Conversation:
        messages = [
            TranscriptMessage(body=body, key=f"{place}-{line.digest}", by_host=_is_observation(line.record))
            for place, line in enumerate(lines)
            if (body := _body(line.record)) is not None
        ]
        session = TranscriptSession(
            session_id=plain_session_id(source), format="openai-chat", agent="swe-agent", source=source
        )
        return session, messages


def _history_of(steps: list[Json]) -> Iterator[Json]:
    """The first prompt, then the response and the observation of each step."""
    if steps:
        yield from objects(steps[0].get("query") or steps[0].get("messages"))
    for step in steps:
        yield {"role": "assistant", "content": step.get("response") or step.get("thought")}
        yield {"role": "user", "content": step.get("observation"), "message_type": "observation"}


def _is_observation(record: Json) -> bool:
    """Whether this is a tool's output in a message of the user's role."""
    return record.get("role") == "user" and record.get("message_type") == "observation"


def _body(record: Json) -> Native | None:
    """The message unchanged, or as a result if it names a call. SWE-agent names it in a list, which has one item."""
    if not record.get("content") and not record.get("tool_calls"):
        return None
    ids = record.get("tool_call_ids")
    answered = next((found for found in ids if text_of(found)), None) if isinstance(ids, list) else None
    if answered is None or record.get("role") == "assistant":
        return record
    kept = {name: value for name, value in record.items() if name != "tool_call_ids"}
    return {**kept, "role": "tool", "tool_call_id": answered}
