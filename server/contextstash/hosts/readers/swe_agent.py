"""SWE-agent's trajectories (`.traj`): one JSON object with `history` and `trajectory`.

Formats as in SWE-agent/SWE-agent, docs/usage/trajectories.md and sweagent/types.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from contextstash.hosts.readers.documents import Json, line_of, load_document, objects, stamp_of, unseen
from contextstash.hosts.readers.plain import plain_session_id
from contextstash.hosts.readers.transcript import Batch, Line, Stamp, State, text_of
from contextstash.service.recording.transcript_records import TranscriptMessage, TranscriptSession
from contextstash_storage.records import Native


class SweAgentReader:
    """Reads the history, whose messages are OpenAI's; if it is missing, the response and the observation of each step.

    Not kept: the environment's state, and which messages were shortened for a single prompt. Usage is reported for the
    whole run only, so none is recorded.
    """

    name = "swe-agent"

    def claims(self, path: Path, document: object) -> bool:
        steps = objects(document.get("trajectory")) if isinstance(document, dict) else []
        return bool(steps) and {"action", "observation"} <= steps[0].keys()

    def stamp(self, path: Path) -> Stamp:
        return stamp_of([path])

    def load(self, path: Path) -> list[Line]:
        document = load_document(path)
        if not isinstance(document, dict):
            return []
        history = objects(document.get("history"))
        if history:
            return [line_of(record) for record in history]
        return list(_history_of(objects(document.get("trajectory"))))

    def read(self, lines: Iterable[Line], state: State, source: str) -> list[Batch]:
        messages = [
            TranscriptMessage(body=body, key=f"{place}-{line.digest}", by_host=_is_observation(line.record))
            for place, line in enumerate(lines)
            if (body := _body(line.record)) is not None
        ]
        session = TranscriptSession(
            session_id=plain_session_id(source), format="openai-chat", agent="swe-agent", source=source
        )
        fresh = unseen(messages, state)
        return [Batch(session, fresh)] if fresh else []


def _history_of(steps: list[Json]) -> Iterator[Line]:
    """The first prompt, then the response and the observation of each step."""
    if steps:
        yield from map(line_of, objects(steps[0].get("query") or steps[0].get("messages")))
    for step in steps:
        yield line_of({"role": "assistant", "content": step.get("response") or step.get("thought")})
        seen = {"role": "user", "content": step.get("observation")}
        yield Line({**seen, "message_type": "observation"}, line_of(seen).digest)


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
