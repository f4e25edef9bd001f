"""pi's session files: its own message form, recorded in the shape of Anthropic's."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from contextstash.hosts.transcript import Batch, Line, State, moment, text_of
from contextstash.service.transcripts import TranscriptMessage, TranscriptSession
from contextstash_storage.records import Native, Usage


class PiReader:
    """Reads `message` records. pi keeps one form for all providers, so each is translated, nothing left out."""

    name = "pi"

    def knows(self, lines: list[Line]) -> bool:
        return any(line.record.get("type") == "session" and "cwd" in line.record for line in lines)

    def read(self, lines: Iterable[Line], state: State, source: str) -> list[Batch]:
        messages: list[TranscriptMessage] = []
        for line in lines:
            record = line.record
            if record.get("type") == "session" and text_of(record.get("id")):
                state.setdefault("session", record["id"])
            message = record.get("message")
            if record.get("type") == "message" and isinstance(message, dict) and message.get("content"):
                messages.append(_message(line, message))
        session = TranscriptSession(
            session_id=str(state.get("session") or Path(source).stem), format="anthropic", agent="pi", source=source
        )
        return [Batch(session, messages)] if messages else []


def _message(line: Line, message: dict[str, Any]) -> TranscriptMessage:
    reply = message.get("role") == "assistant"
    return TranscriptMessage(
        body=_body(message),
        key=line.mark,
        usage=_usage(message.get("usage")) if reply else None,
        model=message.get("model") if reply else None,
        created_at=moment(line.record.get("timestamp")),
    )


def _body(message: dict[str, Any]) -> Native:
    content = message["content"]
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    blocks = [_block(block) for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    if message.get("role") != "toolResult":
        return {"role": message.get("role"), "content": blocks}
    result = {"type": "tool_result", "tool_use_id": message.get("toolCallId"), "content": blocks}
    if message.get("isError"):
        result["is_error"] = True
    return {"role": "user", "content": [result]}


def _block(block: dict[str, Any]) -> dict[str, Any]:
    kind = block.get("type")
    if kind == "toolCall":
        arguments = block.get("arguments") or {}
        return {"type": "tool_use", "id": block.get("id"), "name": block.get("name"), "input": arguments}
    if kind == "thinking":
        thinking = {"type": "thinking", "thinking": block.get("thinking", "")}
        return {**thinking, "signature": block["thinkingSignature"]} if block.get("thinkingSignature") else thinking
    if kind == "image" and "data" in block:
        source = {"type": "base64", "media_type": block.get("mimeType", "image/png"), "data": block["data"]}
        return {"type": "image", "source": source}
    return block


def _usage(usage: object) -> Usage | None:
    if not isinstance(usage, dict):
        return None
    cached, written = _number(usage, "cacheRead"), _number(usage, "cacheWrite")
    prompt = _number(usage, "input") + cached + written
    if not prompt:
        return None
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=_number(usage, "output"),
        cached_tokens=cached,
        cache_write_tokens=written,
    )


def _number(usage: dict[str, Any], field: str) -> int:
    value = usage.get(field)
    return value if isinstance(value, int) and value > 0 else 0
