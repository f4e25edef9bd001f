"""Codex CLI's rollout files: OpenAI Responses items, one JSON line each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from contextstash.formats.usage import read_usage
from contextstash.hosts.transcript import Batch, Line, State, moment, text_of
from contextstash.service.transcripts import TranscriptMessage, TranscriptSession
from contextstash_storage.records import Usage

NOT_SENT = frozenset({"ghost_snapshot", "other"})
"""Items of the rollout that never go to the model."""


class CodexReader:
    """Reads `response_item` records; `token_count` events report the usage of the reply before them."""

    name = "codex"

    def knows(self, lines: list[Line]) -> bool:
        return any(line.record.get("type") == "session_meta" for line in lines)

    def read(self, lines: Iterable[Line], state: State, source: str) -> list[Batch]:
        messages: list[TranscriptMessage] = []
        for line in lines:
            payload = line.record.get("payload")
            if isinstance(payload, dict):
                _take(line, payload, state, messages)
        session = TranscriptSession(
            session_id=str(state.get("session") or Path(source).stem),
            format="openai-responses",
            agent="codex",
            model=state.get("model"),
            source=source,
            parent_session_id=state.get("parent"),
        )
        return [Batch(session, messages)] if messages else []


def _take(line: Line, payload: dict[str, Any], state: State, messages: list[TranscriptMessage]) -> None:
    kind = line.record.get("type")
    created = moment(line.record.get("timestamp"))
    if kind == "session_meta" and text_of(payload.get("id")):
        _begin(payload, state)
    elif kind == "turn_context" and text_of(payload.get("model")):
        state["model"] = payload["model"]
    elif kind == "response_item" and payload.get("type") not in NOT_SENT:
        messages.append(TranscriptMessage(body=payload, key=line.mark, model=state.get("model"), created_at=created))
    elif kind == "compacted":
        body = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": _summary(payload)}]}
        messages.append(TranscriptMessage(body=body, key=line.mark, created_at=created, covers_before=True))
    elif payload.get("type") == "token_count":
        info = payload.get("info")
        usage = info.get("last_token_usage") if isinstance(info, dict) else None
        if isinstance(usage, dict):
            _report(read_usage(usage), messages)


def _begin(payload: dict[str, Any], state: State) -> None:
    """A fork repeats the meta record of what it was forked from: the first one counts."""
    if "session" not in state:
        state["session"] = payload["id"]
        parent = text_of(payload.get("parent_thread_id")) or text_of(payload.get("forked_from_id"))
        if parent:
            state["parent"] = parent


def _report(usage: Usage | None, messages: list[TranscriptMessage]) -> None:
    """The usage of a reply, on its last item. Codex writes it after the outputs of the calls in that reply,
    and again where only its rate limits changed."""
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        if _is_reply(message.body):
            if message.usage is None:
                messages[place] = replace(message, usage=usage)
            return
        if not str(message.body.get("type")).endswith("_output"):
            return


def _is_reply(item: dict[str, Any]) -> bool:
    return item.get("role") == "assistant" or item.get("type") in (
        "reasoning", "function_call", "custom_tool_call", "web_search_call", "local_shell_call",
    )  # fmt: skip


def _summary(payload: dict[str, Any]) -> str:
    """What Codex put in place of the history: its summary, or the texts of the messages that it kept."""
    if text := text_of(payload.get("message")):
        return text
    texts = []
    for item in payload.get("replacement_history") or []:
        content = item.get("content") if isinstance(item, dict) else None
        for part in content if isinstance(content, list) else []:
            if isinstance(part, dict) and text_of(part.get("text")):
                texts.append(part["text"])
    return "\n\n".join(texts) or "(Codex compacted the conversation here; its summary is not readable.)"
