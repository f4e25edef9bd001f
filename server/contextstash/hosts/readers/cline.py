"""Cline's and Roo Code's tasks: `api_conversation_history.json` in a task's folder.

Formats as in cline/cline, src/core/storage/disk.ts and src/shared/messages (Anthropic messages with `ts`,
`modelInfo` and `metrics`), and RooCodeInc/Roo-Code, src/core/task-persistence/apiMessages.ts and rooMessage.ts (the
same with fields for condensed messages, and since version 2 an object with `messages` in the format of the AI SDK). The
usage of calls is in `ui_messages.json` in the same folder, in messages `api_req_started`.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from contextstash.hosts.readers.documents import (
    Conversation,
    DocumentReader,
    Json,
    count_of,
    load_document,
    objects,
    parse_document,
    part,
    usage_of,
)
from contextstash.hosts.readers.plain import named_session_id
from contextstash.hosts.readers.transcript import Line, moment_of_ms, text_of
from contextstash.service.recording.transcript_records import TranscriptMessage, TranscriptSession
from contextstash_storage.records import Native, Usage

HISTORY = ("api_conversation_history.json", "claude_messages.json")
INTERFACE = "ui_messages.json"

_AI_SDK = frozenset({"tool-call", "tool-result", "reasoning"})


class ClineReader(DocumentReader):
    """Reads a task's messages unchanged, those in the AI SDK's format as Anthropic messages. A summary by Roo Code
    covers what it replaced, and so does its note that messages were left out. Not kept: Roo Code's encrypted reasoning
    items, and which messages Cline left out (this file does not say)."""

    name = "cline"

    def claims(self, path: Path, document: object) -> bool:
        messages = document.get("messages") if isinstance(document, dict) else document
        return path.name in HISTORY and isinstance(messages, list)

    def files(self, path: Path) -> list[Path]:
        return [path, *(file for file in [path.with_name(INTERFACE)] if file.is_file())]

    def records(self, path: Path) -> list[Json]:
        """What is known of the whole task, then its messages."""
        document = load_document(path)
        version_2 = isinstance(document, dict)
        messages = objects(document.get("messages") if isinstance(document, dict) else document)
        requests = [record for file in self.files(path)[1:] for record in objects(load_document(file))]
        head = {"roo": version_2 or _is_roo_code(path, messages), "requests": list(_requests(requests))}
        return [head, *messages]

    def conversation(self, lines: list[Line], source: str) -> Conversation:
        head = lines[0].record if lines else {}
        usages = _Usages(objects(head.get("requests")))
        session = TranscriptSession(
            session_id=named_session_id(f"task-{Path(source).parent.name}", source),
            format="anthropic",
            agent="roo-code" if head.get("roo") else "cline",
            source=source,
        )
        return session, _messages(lines[1:], usages)


def _is_roo_code(path: Path, messages: Sequence[Json]) -> bool:
    fields = ("condenseId", "condenseParent", "isSummary", "truncationParent")
    return "roo-c" in path.as_posix().lower() or any(field in message for message in messages for field in fields)


def _messages(lines: Sequence[Line], usages: _Usages) -> Iterator[TranscriptMessage]:
    found = [(place, line, body) for place, line in enumerate(lines) if (body := _body(line.record)) is not None]
    keys = [_key(place, line) for place, line, _ in found]
    records = [line.record for _, line, _ in found]
    for place, (_, line, body) in enumerate(found):
        yield TranscriptMessage(
            body=body,
            key=keys[place],
            usage=usages.of(line.record) if body["role"] == "assistant" else None,
            model=text_of(part(line.record, "modelInfo").get("modelId")),
            created_at=moment_of_ms(line.record.get("ts")),
            **_covered(records, place, keys),
        )


def _covered(records: Sequence[Json], place: int, keys: Sequence[str]) -> dict[str, Any]:
    """The range that a summary by Roo Code, or its note that messages were left out, covers: the messages that name it
    (older versions delete them), between the kept messages."""
    record = records[place]
    name = record.get("condenseId") if record.get("isSummary") is True else record.get("truncationId")
    if not (record.get("isSummary") is True or record.get("isTruncationMarker") is True):
        return {}
    parents = [text_of(other.get("condenseParent")) or text_of(other.get("truncationParent")) for other in records]
    first = parents.index(name) if name in parents and text_of(name) else place
    after = next((later for later in range(place + 1, len(records)) if parents[later] != name), None)
    return {
        "covers_before": True,
        "covers_after_key": keys[first - 1] if first else None,
        "covers_before_key": None if after is None else keys[after],
    }


def _key(place: int, line: Line) -> str:
    """The message's time and role, which identify it wherever it is in the file; without a time its position and
    digest."""
    stamp = line.record.get("ts")
    return f"{stamp}-{line.record.get('role')}" if isinstance(stamp, int) else f"{place}-{line.digest}"


def _body(record: Json) -> Native | None:
    """The message unchanged; one in the AI SDK's format as an Anthropic message."""
    role, content = record.get("role"), record.get("content")
    if role not in ("user", "assistant", "tool") or not content:
        return None
    if role != "tool" and not any(text_of(item.get("type")) in _AI_SDK for item in objects(content)):
        return record
    blocks = [_block(item) for item in objects(content)]
    return {"role": "assistant" if role == "assistant" else "user", "content": blocks}


def _block(item: Json) -> Native:
    kind = item.get("type")
    if kind == "tool-call":
        arguments = part(item, "input")
        return {"type": "tool_use", "id": item.get("toolCallId"), "name": item.get("toolName"), "input": arguments}
    if kind == "tool-result":
        text, failed = _output(item.get("output"))
        result = {"type": "tool_result", "tool_use_id": item.get("toolCallId"), "content": text}
        return {**result, "is_error": True} if failed else result
    if kind == "reasoning":
        thinking = {"type": "thinking", "thinking": item.get("text", "")}
        signature = text_of(part(item, "providerOptions", "anthropic").get("signature"))
        return {**thinking, "signature": signature} if signature else thinking
    if kind == "image" and "image" in item:
        source = {"type": "base64", "media_type": item.get("mediaType", "image/png"), "data": item["image"]}
        return {"type": "image", "source": source}
    return item


def _output(output: object) -> tuple[str, bool]:
    """The text of a result in the AI SDK's format, and whether it is an error."""
    if not isinstance(output, dict):
        return output if isinstance(output, str) else json.dumps(output, ensure_ascii=False), False
    value = output.get("value")
    failed = str(output.get("type", "")).startswith("error")
    if isinstance(value, list):
        return "\n".join(str(item.get("text") or f"[{item.get('type')}]") for item in objects(value)), failed
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), failed


def _requests(interface: Iterable[Json]) -> Iterator[Json]:
    """The usage of each call to the model, as the extension shows it, with the time when the call began."""
    for message in interface:
        if message.get("say") == "api_req_started" and isinstance(message.get("ts"), int):
            reported = parse_document(str(message.get("text")).encode("utf-8", "replace"))
            if isinstance(reported, dict) and "tokensIn" in reported:
                numbers = ("tokensIn", "tokensOut", "cacheWrites", "cacheReads")
                yield {"ts": message["ts"], **{name: reported.get(name) or 0 for name in numbers}}


class _Usages:
    """The usage of each reply: its own metrics, else those of the latest call that began before it was recorded."""

    def __init__(self, requests: Sequence[Json]) -> None:
        self._requests = list(requests)
        self._times = [request["ts"] for request in requests]
        self._given: set[int] = set()

    def of(self, record: Json) -> Usage | None:
        tokens = part(record, "metrics", "tokens")
        if prompt := count_of(tokens, "prompt"):
            cached = count_of(tokens, "cached")
            return usage_of(prompt + cached, count_of(tokens, "completion"), cached)
        stamp = record.get("ts")
        place = bisect_right(self._times, stamp) - 1 if isinstance(stamp, int) else -1
        if place < 0 or place in self._given:
            return None
        self._given.add(place)
        return _usage(self._requests[place])


def _usage(request: Json) -> Usage | None:
    read, written = count_of(request, "cacheReads"), count_of(request, "cacheWrites")
    return usage_of(count_of(request, "tokensIn") + read + written, count_of(request, "tokensOut"), read, written)
