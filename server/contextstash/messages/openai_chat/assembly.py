"""Repairs and orders a list of Chat Completions messages so that the API accepts it.

Results directly follow the message with their call. A call without a result gets one that says that it was interrupted.
A result without its call becomes a user message. Keys that a request may not have, and messages without content, are
left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from contextstash.messages.block_reader import MISSING_RESULT, as_json, orphan_text
from contextstash.messages.pairs import Event, calls_of_results
from contextstash_storage.records import Native

REPLY_KEYS = frozenset(
    {
        "usage",
        "annotations",
        "finish_reason",
        "logprobs",
        "model",
        "id",
        "object",
        "created",
        "index",
        "provider",
        "system_fingerprint",
        "timestamp",
        "extra",
    }
)
"""Keys that replies and recorders add to a message, and that a request may not have."""

NULLABLE = ("content", "refusal")
"""Keys that may be null in a request; any other key with the value null is left out."""


CONTENT_KEYS = ("tool_calls", "function_call", "refusal", "audio")
"""Keys other than `content` that give a message content."""

RESULT_ROLES = ("tool", "function")


def legacy_call_id(name: str) -> str:
    """The id that pairs a legacy `function_call`, which has no id, with its result."""
    return f"function_call:{name}"


def assemble(natives: Sequence[Native]) -> list[Native]:
    """The messages of a valid request; equal to `natives` if these are valid already."""
    shaped = [_request_shaped(native) for native in natives]
    messages = [_each_call_once(each) for each in shaped if each["role"] in RESULT_ROLES or not is_empty(each)]
    answered = calls_of_results(_events(messages))
    results: dict[int, list[Native]] = {}
    for (place, _), (caller, _) in answered.items():
        results.setdefault(caller, []).append(messages[place][0])
    done = set(answered.values())
    sent: list[Native] = []
    for at, (message, calls) in enumerate(messages):
        if message["role"] not in RESULT_ROLES:
            sent.append(message)
            sent += results.get(at, ())
            sent += [_missing(*call) for number, call in enumerate(calls) if (at, number) not in done]
        elif (at, 0) not in answered and (shown := _orphan(message)):
            sent.append(shown)
    return sent


Call = tuple[str, str]
"""The id of a call, and the name of a legacy one."""


def _events(messages: Sequence[tuple[Native, Sequence[Call]]]) -> Iterator[Event]:
    """Each message is a turn of its own: a result before its call answers none."""
    for at, (message, calls) in enumerate(messages):
        if message["role"] in RESULT_ROLES:
            legacy = message["role"] == "function"
            call_id = legacy_call_id(message["name"]) if legacy else message["tool_call_id"]
            yield Event((at, 0), call_id, is_call=False, turn=at)
        for number, (call_id, _) in enumerate(calls):
            yield Event((at, number), call_id, is_call=True, turn=at)


def _request_shaped(native: Native) -> Native:
    message = dict(native)
    if None in message.values() or not REPLY_KEYS.isdisjoint(message):
        message = {
            key: value
            for key, value in message.items()
            if key not in REPLY_KEYS and (value is not None or key in NULLABLE)
        }
    role, content = message["role"], message.get("content")
    if role != "assistant":
        message.pop("tool_calls", None)
        message.pop("function_call", None)
    elif message.get("tool_calls") == []:
        del message["tool_calls"]
    if content == []:
        content = message["content"] = None
    if content is None and role in RESULT_ROLES:
        message["content"] = ""
    audio = message.get("audio")
    if isinstance(audio, dict) and "id" in audio and len(audio) > 1:
        message["audio"] = {"id": audio["id"]}
    return message


def is_empty(message: Native) -> bool:
    """Whether a message has no content and no calls. An empty text is no content: OpenAI takes it, but other providers
    of this format refuse it, and a model learns nothing from it."""
    return not message.get("content") and not any(message.get(key) for key in CONTENT_KEYS)


def _each_call_once(message: Native) -> tuple[Native, list[Call]]:
    """The message without repeated calls of the same id, and its calls."""
    if message["role"] != "assistant":
        return message, []
    made = message.get("tool_calls") or ()
    if len(made) <= 1 and not message.get("function_call"):
        return message, [(call["id"], "") for call in made]
    calls: dict[str, str] = {}
    kept = []
    for call in made:
        if call["id"] not in calls:
            calls[call["id"]] = ""
            kept.append(call)
    if len(kept) < len(made):
        message = {**message, "tool_calls": kept}
    legacy = message.get("function_call")
    if legacy:
        calls[legacy_call_id(legacy["name"])] = legacy["name"]
    return message, list(calls.items())


def _missing(call_id: str, name: str) -> Native:
    answered = {"role": "function", "name": name} if name else {"role": "tool", "tool_call_id": call_id}
    return {**answered, "content": MISSING_RESULT}


def _orphan(result: Native) -> Native | None:
    """A result without its call as a user message, with its text, images and files."""
    content = result["content"]
    if isinstance(content, str):
        text = orphan_text(content)
        return {"role": "user", "content": text} if text else None
    media = [part for part in content if part["type"] in ("image_url", "file")]
    rest = [part for part in content if part["type"] not in ("image_url", "file")]
    text = orphan_text("\n".join(_part_text(part) for part in rest))
    parts: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    return {"role": "user", "content": parts + media} if parts or media else None


def _part_text(part: dict[str, Any]) -> str:
    return part["text"] if part["type"] == "text" else as_json(part)
