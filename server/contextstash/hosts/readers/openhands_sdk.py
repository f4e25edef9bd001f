"""Conversations of OpenHands' software-agent-sdk: a folder with `base_state.json` and `events/event-<n>-<id>.json`.

Formats as in OpenHands/software-agent-sdk, openhands-sdk/openhands/sdk/event (events; event/base.py joins those of one
reply to one message) and conversation/persistence_const.py (names).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from contextstash.hosts.readers import chat_messages as chat
from contextstash.hosts.readers.documents import (
    Conversation,
    DocumentReader,
    Json,
    count_of,
    load_document,
    objects,
    part,
    usage_of,
)
from contextstash.hosts.readers.openhands import condensation
from contextstash.hosts.readers.transcript import Line, text_of
from contextstash.service.recording.transcript_records import TranscriptMessage, TranscriptSession
from contextstash_storage.records import Native, Usage

STATE = "base_state.json"

_NAME = re.compile(r"event-(\d{5,})-[0-9a-fA-F-]{8,}\.json")
_RESULTS = ("ObservationEvent", "UserRejectObservation", "AgentErrorEvent")


class OpenHandsSdkReader(DocumentReader):
    """Reads events as OpenAI Chat messages (with LiteLLM's `thinking_blocks`); usage from `base_state.json`.

    A condensation becomes a summary that covers the events it forgot. Not kept: tool definitions, reasoning items of
    OpenAI Responses, security risks, and events that are not sent to the model.
    """

    name = "openhands-sdk"

    def claims(self, path: Path, document: object) -> bool:
        return path.is_dir() and bool(_files(path))

    def files(self, path: Path) -> list[Path]:
        state = _folder(path) / STATE
        return [_folder(path) / "events", *_files(path)[-1:], *([state] if state.is_file() else [])]

    def records(self, path: Path) -> list[Json]:
        """The usage reports, then the events."""
        state = _folder(path) / STATE
        reports = list(_reports(load_document(state))) if state.is_file() else []
        return [{"reports": reports}, *objects([load_document(file) for file in _files(path)])]

    def conversation(self, lines: list[Line], source: str) -> Conversation:
        head, *rest = [line.record for line in lines] or [{}]
        usages = {report["response_id"]: _usage(report) for report in objects(head.get("reports"))}
        name = _folder(Path(source)).name.replace(" ", "-")
        session = TranscriptSession(
            session_id=f"openhands-{name}", format="openai-chat", agent="openhands", source=source
        )
        return session, _messages(rest, usages)


def _folder(path: Path) -> Path:
    return path.parent if path.name == "events" else path


def _files(path: Path) -> list[Path]:
    named = [(found, file) for file in (_folder(path) / "events").glob("event-*.json") if (found := _number(file))]
    return [file for _, file in sorted(named)]


def _number(file: Path) -> tuple[int] | None:
    found = _NAME.fullmatch(file.name)
    return (int(found[1]),) if found else None


def _reports(state: object) -> Iterator[Json]:
    """The usage reports of all models, one for each call."""
    stats = part(state, "stats")
    found = part(stats, "usage_to_metrics") or part(stats, "service_to_metrics")
    for metrics in found.values():
        for report in objects(part({"": metrics}, "").get("token_usages")):
            if text_of(report.get("response_id")):
                yield report


def _usage(report: Json) -> Usage | None:
    names = ("prompt_tokens", "completion_tokens", "cache_read_tokens", "cache_write_tokens")
    return usage_of(*(count_of(report, name) for name in names))


def _messages(events: Sequence[Json], usages: dict[str, Usage | None]) -> Iterator[TranscriptMessage]:
    keys: dict[str, str] = {}
    for reply, group in groupby(events, key=_reply_of):
        batch = list(group)
        if reply is None:
            for event in batch:
                if (message := _message_of(event, keys, usages)) is not None:
                    keys[str(event.get("id"))] = str(message.key)
                    yield message
            continue
        key = str(batch[0].get("id")) if len(batch) == 1 else f"{batch[0].get('id')}+{len(batch)}"
        keys |= {str(event.get("id")): key for event in batch}
        yield TranscriptMessage(body=_calls(batch), key=key, group=reply, usage=usages.get(reply))


def _reply_of(event: Json) -> str | None:
    """The id of the reply that an action belongs to, None for other events. Actions of one reply are one message."""
    return str(event.get("llm_response_id")) if event.get("kind") == "ActionEvent" else None


def _message_of(event: Json, keys: dict[str, str], usages: dict[str, Usage | None]) -> TranscriptMessage | None:
    kind, key = event.get("kind"), str(event.get("id"))
    if kind == "Condensation":
        named = event.get("forgotten_event_ids")
        forgotten = set(map(str, named)) if isinstance(named, list) else set()
        return condensation(keys, forgotten, event.get("summary"), key)
    body = _result(event) if kind in _RESULTS else _message_body(event)
    if body is None:
        return None
    reply = text_of(event.get("llm_response_id"))
    by_host = body["role"] == "user" and event.get("source") == "environment"
    return TranscriptMessage(body=body, key=key, group=reply, usage=usages.get(reply or ""), by_host=by_host)


def _message_body(event: Json) -> Native | None:
    if event.get("kind") == "SystemPromptEvent":
        prompts = (part(event, "system_prompt").get("text"), part(event, "dynamic_context").get("text"))
        return chat.system_message("\n\n".join(filter(None, map(text_of, prompts))))
    if event.get("kind") != "MessageEvent":
        return None
    message = part(event, "llm_message")
    content = _content([*_parts(message.get("content")), *objects(event.get("extended_content"))])
    if message.get("role") == "assistant":
        return {**chat.reply(str(content)), **_thinking(message)} if content else None
    return chat.user_message(content) if content else None


def _calls(batch: Sequence[Json]) -> Native:
    first = batch[0]
    text = _content(_parts(first.get("thought")))
    made = [chat.call(str(event.get("tool_call_id")), *_called(event)) for event in batch]
    return {**chat.reply(text if isinstance(text, str) else "", made), **_thinking(first)}


def _called(event: Json) -> tuple[str, object]:
    """The tool's name and arguments; older events keep the call in LiteLLM's format."""
    called = part(event, "tool_call")
    inner = part(called, "function") or called
    return str(event.get("tool_name") or inner.get("name")), inner.get("arguments")


def _thinking(message: Json) -> Native:
    kept = {name: message.get(name) for name in ("reasoning_content", "thinking_blocks", "reasoning_details")}
    return {name: value for name, value in kept.items() if value}


def _result(event: Json) -> Native | None:
    call_id = text_of(event.get("tool_call_id"))
    if call_id is None:
        return None
    if event["kind"] == "AgentErrorEvent":
        return chat.result(call_id, str(event.get("error") or ""))
    if event["kind"] == "UserRejectObservation":
        return chat.result(call_id, f"Action rejected: {event.get('rejection_reason')}")
    extra = objects(event.get("extended_content"))
    return chat.result(call_id, _content([*_observed(part(event, "observation")), *extra]))


def _observed(observation: Json) -> list[Json]:
    """The parts of an observation that were sent to the model: its content, in older events a field of another name."""
    for name in ("content", "output", "message", "result", "error"):
        if observation.get(name):
            return _parts(observation[name])
    rest = {name: value for name, value in observation.items() if name != "kind" and value}
    return [chat.text_part(json.dumps(rest, ensure_ascii=False))] if rest else []


def _parts(content: Any) -> list[Json]:
    return [chat.text_part(content)] if isinstance(content, str) else objects(content)


def _content(parts: Iterable[Json]) -> chat.Content:
    found: list[Native] = []
    for item in parts:
        if isinstance(item.get("text"), str):
            found.append(chat.text_part(item["text"]))
        urls = item.get("image_urls")
        found += [chat.image_part(url) for url in urls if isinstance(url, str)] if isinstance(urls, list) else []
    return chat.simple(found)
