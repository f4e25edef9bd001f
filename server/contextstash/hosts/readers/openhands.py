"""Sessions of OpenHands before version 1: a folder of `events/<n>.json`, or a trajectory file.

Formats as in All-Hands-AI/OpenHands, openhands/events/serialization/event.py (`event_to_dict`); events become messages
as in openhands/memory/conversation_memory.py. Sessions of the newer software-agent-sdk are read by
contextstash.hosts.readers.openhands_sdk.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from contextstash.formats.usage import read_usage
from contextstash.hosts.readers import chat_messages as chat
from contextstash.hosts.readers.documents import Conversation, DocumentReader, Json, load_document, objects, part
from contextstash.hosts.readers.plain import plain_session_id
from contextstash.hosts.readers.transcript import Line, text_of
from contextstash.service.recording.transcript_records import TranscriptMessage, TranscriptSession
from contextstash_storage.records import Native

NOT_MESSAGES = frozenset(
    {"agent_state_changed", "change_agent_state", "null", "recall", "loop_recovery", "start", "pause"}
)
"""Actions and observations that OpenHands does not send to the model as messages."""


class OpenHandsReader(DocumentReader):
    """Reads events as OpenAI Chat messages: a reply with all its calls, then the results in the order of the events.

    A condensation becomes a summary that covers the events it forgot. Not kept: recalled knowledge and workspace
    information, screenshots, and the other fields of an event.
    """

    name = "openhands"

    def claims(self, path: Path, document: object) -> bool:
        events = objects([load_document(file) for file in _files(path)[:1]] if path.is_dir() else document)
        return bool(events) and all(
            "source" in event and ("action" in event or "observation" in event) for event in events[:5]
        )

    def files(self, path: Path) -> list[Path]:
        return [_events_folder(path), *_files(path)[-1:]] if path.is_dir() else [path]

    def records(self, path: Path) -> list[Json]:
        return objects([load_document(file) for file in _files(path)] if path.is_dir() else load_document(path))

    def conversation(self, lines: list[Line], source: str) -> Conversation:
        conversation = _Conversation()
        for place, line in enumerate(lines):
            conversation.take(line, place)
        session = TranscriptSession(
            session_id=_session_id(Path(source)), format="openai-chat", agent="openhands", source=source
        )
        return session, conversation.messages


def _events_folder(path: Path) -> Path:
    return path / "events" if (path / "events").is_dir() else path


def _files(path: Path) -> list[Path]:
    """The events in a folder, in order. Their names are their numbers."""
    files = [file for file in _events_folder(path).glob("*.json") if file.stem.isdecimal()]
    return sorted(files, key=lambda file: int(file.stem))


def _session_id(path: Path) -> str:
    named = path.parent if path.name == "events" else path
    return f"openhands-{named.name}".replace(" ", "-") if path.is_dir() else plain_session_id(str(path))


class _Conversation:
    """The messages made from the events so far. `_at` maps the number of an event to the key of its message, `_replies`
    the id of a reply to the key of its message."""

    def __init__(self) -> None:
        self.messages: list[TranscriptMessage] = []
        self._at: dict[int, str] = {}
        self._replies: dict[str, str] = {}

    def take(self, line: Line, place: int) -> None:
        event = line.record
        event_id = event.get("id")
        number = event_id if isinstance(event_id, int) else place
        if event.get("action") == "condensation":
            self._condense(event, f"{number}-{line.digest}")
            return
        if str(event.get("action") or event.get("observation")) in NOT_MESSAGES:
            return
        response = part(event, "tool_call_metadata", "model_response")
        reply = text_of(response.get("id")) if "action" in event else None
        if reply in self._replies:
            self._at[number] = self._replies[str(reply)]
            return
        body = _action(event, response) if "action" in event else _observation(event)
        if body is None:
            return
        key = f"{number}-{line.digest}"
        self._at[number] = key
        if reply is not None:
            self._replies[reply] = key
        usage = read_usage(part(response, "usage")) if body["role"] == "assistant" else None
        model = text_of(response.get("model"))
        by_host = body["role"] == "user" and "observation" in event
        self.messages.append(
            TranscriptMessage(body=body, key=key, group=reply, usage=usage, model=model, by_host=by_host)
        )

    def _condense(self, event: Json, key: str) -> None:
        arguments = part(event, "args")
        in_order = dict(sorted(self._at.items()))
        if summary := condensation(in_order, _forgotten(arguments), arguments.get("summary"), key):
            self.messages.append(summary)


def condensation(
    at: Mapping[Any, str], forgotten: Collection[Any], summary: object, key: str
) -> TranscriptMessage | None:
    """A summary that covers the forgotten events; those before and after them stay. `at` maps the events so far to the
    keys of their messages. None if none of them is forgotten."""
    covered = [place for place, event in enumerate(at) if event in forgotten]
    if not covered:
        return None
    keys = list(at.values())
    return TranscriptMessage(
        body=chat.user_message(text_of(summary) or "(Events before this were left out.)"),
        key=key,
        covers_before=True,
        covers_after_key=keys[covered[0] - 1] if covered[0] else None,
        covers_before_key=next(iter(keys[covered[-1] + 1 :]), None),
    )


def _forgotten(arguments: Json) -> set[int]:
    ids = arguments.get("forgotten_event_ids")
    if isinstance(ids, list):
        return {number for number in ids if isinstance(number, int)}
    first, last = arguments.get("forgotten_events_start_id"), arguments.get("forgotten_events_end_id")
    return set(range(first, last + 1)) if isinstance(first, int) and isinstance(last, int) else set()


def _action(event: Json, response: Json) -> Native | None:
    arguments = part(event, "args")
    by_user = event.get("source") == "user"
    if event["action"] == "system":
        return chat.system_message(str(arguments.get("content") or ""))
    if event["action"] == "message":
        text = str(arguments.get("content") or "")
        urls = arguments.get("image_urls")
        images = [chat.image_part(url) for url in urls if isinstance(url, str)] if isinstance(urls, list) else []
        if by_user:
            return chat.user_message([chat.text_part(text), *images] if images else text) if text or images else None
        return chat.reply(text) if text else None
    if by_user:
        command = arguments.get("command") or arguments.get("path") or event["action"]
        return chat.user_message(f"User executed the command:\n{command}")
    message = part({"": next(iter(objects(response.get("choices"))), {})}, "", "message")
    if event["action"] != "finish" and (calls := objects(message.get("tool_calls"))):
        return {
            "role": "assistant",
            "content": message.get("content"),
            "tool_calls": [_call(item) for item in calls],
        }
    candidates = [
        message.get("content"),
        arguments.get("thought"),
        arguments.get("final_thought"),
        event.get("message"),
    ]
    thought = next((found for found in candidates if text_of(found)), None)
    return chat.reply(str(thought)) if thought else None


def _call(item: Json) -> Native:
    function = part(item, "function")
    return chat.call(str(item.get("id")), str(function.get("name")), function.get("arguments"))


def _observation(event: Json) -> Native | None:
    text = str(event.get("content") or "")
    code = part(event, "extras", "metadata").get("exit_code")
    if event.get("observation") == "run" and isinstance(code, int):
        text += f"\n[Command finished with exit code {code}]"
    call_id = text_of(part(event, "tool_call_metadata").get("tool_call_id"))
    if call_id:
        return chat.result(call_id, text)
    return chat.user_message(text) if text else None
