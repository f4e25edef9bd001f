"""OpenAI Chat Completions: tool calls in a field next to the content, results as messages of role `tool`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from contextstash.messages import base
from contextstash.messages.base import Call, Format, Part, PartKinds, Piece
from contextstash.messages.rules import MISSING_RESULT
from contextstash_storage.errors import BadMessageError
from contextstash_storage.records import Native, Role

ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}

SIGNED_THINKING = ("thinking_blocks", "reasoning_details")
"""Fields in which gateways to Anthropic store thinking with its signatures: LiteLLM and OpenRouter."""

PLAIN_THINKING = ("reasoning_content", "reasoning")

OTHER_CONTENT = ("tool_calls", "refusal")
"""Keys other than `content` that give a message content."""

REPLY_KEYS = frozenset({
    "usage", "annotations", "finish_reason", "logprobs", "model", "id", "object", "created", "index", "provider",
    "system_fingerprint", "timestamp", "extra",
})  # fmt: skip
"""Keys that replies and recorders add to a message, and that a request may not have."""

NULLABLE = ("content", "refusal")
"""Keys that may be null in a request; any other key with the value null is left out."""

_OWN_PARTS = ("image_url", "input_audio", "refusal", "file")
_FOREIGN_PARTS = ("tool_use", "tool_result", "server_tool_use", "function_call", "input_text")


class OpenAIChatFormat(Format):
    """OpenAI Chat Completions, and the fields that compatible APIs add (`reasoning_content`, `usage` on a message).

    A tool message is one block of type `tool_result`. Images in it follow as separate blocks with its call id, and
    are removed when it is replaced. `function_call`, of the API before it had tools, is refused.
    """

    name = "openai-chat"
    own_keys = frozenset({"tool_call_id", "reasoning_content", *OTHER_CONTENT, *SIGNED_THINKING})

    def pieces(self, native: Mapping[str, Any]) -> tuple[Role, list[Piece]]:
        if "choices" in native and "role" not in native:
            raise BadMessageError("this is a whole API response; record its choices[0].message.")
        if native.get("function_call") is not None:
            raise BadMessageError("function_call is of the API before it had tools; record it as one of tool_calls.")
        if native.get("audio") is not None:
            raise BadMessageError("spoken replies cannot be sent back by their data; record the transcript as content.")
        if "parts" in native and "content" not in native:
            raise BadMessageError("it has 'parts' instead of 'content'. Record it in its own format.")
        role = base.need_role(native, ROLES, f"one of {', '.join(ROLES)}")
        content = native.get("content")
        pieces = _KINDS.read("" if content is None else content)
        if role == "tool":
            pieces = base.result_pieces(
                _answered_id(native), pieces, ("content",), tool=base.name_of(native.get("name"))
            )
        elif role == "assistant":
            refusal = native.get("refusal")
            spoken = [base.piece("text", refusal)] if isinstance(refusal, str) and refusal else []
            pieces = [*_thinking(native), *pieces, *spoken, *_read_calls(native)]
        return role, pieces

    def is_own_part(self, part: Mapping[str, Any]) -> bool:
        return part["type"] in _OWN_PARTS

    def without_thinking(self, native: Native) -> Native | None:
        """A copy without the signed thinking of a Claude model behind a gateway. Other reasoning stays: DeepSeek and
        similar APIs refuse tool calls without it, and Gemini's signatures belong to the calls."""
        # OpenRouter names the provider; LiteLLM stores Anthropic's own blocks.
        formats = [str(part.get("format") or "anthropic") for part in _signed_parts(native)]
        if not any(name.startswith("anthropic") for name in formats):
            return native
        left = {key: value for key, value in native.items() if key not in (*SIGNED_THINKING, *PLAIN_THINKING)}
        return None if _is_empty(left) else left

    def system_message(self, text: str) -> Native | None:
        return {"role": "system", "content": text}

    def tool_definitions(self, tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{"type": "function", "function": each} for each in tools]

    def sent_parts(self, native: Native) -> tuple[Part, ...]:
        message = _request_shaped(native)
        role = message["role"]
        if role == "tool":
            return (Part(message, False, native, None, (), (_answered_id(message),)),)
        if _is_empty(message):
            return ()
        calls: dict[str, Mapping[str, Any]] = {}
        for call in message.get("tool_calls") or ():  # each id once: results of two could not be distinguished
            calls.setdefault(call["id"], call)
        if not calls:
            return (Part(message, role == "assistant", native),)
        if len(calls) < len(message["tool_calls"]):
            message = {**message, "tool_calls": list(calls.values())}
        return (Part(message, True, native, None, tuple([Call((name,), call) for name, call in calls.items()])),)

    def missing(self, call: Call) -> Native:
        return {"role": "tool", "tool_call_id": call.keys[0], "content": MISSING_RESULT}

    def orphan(self, part: Part) -> list[Native]:
        shown: Any = _KINDS.left_of(part.native["content"])
        if shown and isinstance(part.native["content"], str):
            shown = shown[0]["text"]
        return [{"role": "user", "content": shown}] if shown else []


def _answered_id(native: Mapping[str, Any]) -> str:
    return base.need_text(native, "tool_call_id", "the message", empty=False)


def _file_name(part: Mapping[str, Any]) -> str:
    file = part.get("file")
    return (base.name_of(file.get("filename")) if isinstance(file, dict) else None) or ""


_KINDS = PartKinds(
    {"text": "text", "refusal": "refusal"},
    images=["image_url"],
    documents={"file": _file_name, "input_audio": lambda part: ""},
    foreign=lambda kind: kind in _FOREIGN_PARTS or kind.startswith("output_"),
)


def _thinking(native: Mapping[str, Any]) -> Iterator[Piece]:
    for key in PLAIN_THINKING:
        text = native.get(key)
        if isinstance(text, str) and text:
            yield base.piece("thinking", text)
            return
    signed = _signed_parts(native)
    texts = [part.get(key) for part in signed for key in ("thinking", "text", "summary")]
    if signed:
        yield base.piece("thinking", "\n".join(text for text in texts if isinstance(text, str)))


def _signed_parts(native: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    lists = [native.get(key) for key in SIGNED_THINKING]
    return [part for parts in lists if isinstance(parts, list) for part in parts if isinstance(part, dict)]


def _read_calls(native: Mapping[str, Any]) -> Iterator[Piece]:
    calls = native.get("tool_calls")
    if calls is not None and not isinstance(calls, list):
        raise BadMessageError(f"tool_calls is {base.kind_of(calls)}; expected a list.")
    for place, value in enumerate(calls or ()):
        where = f"tool_calls[{place}]"
        call = base.need_object(value, where)
        call_id = base.need_text(call, "id", where, empty=False)
        kind, argument = ("custom", "input") if call.get("type") == "custom" else ("function", "arguments")
        made = base.need_object(call.get(kind), f"{where}.{kind}")
        given = made.get(argument)
        yield base.call_piece(call_id, base.need_text(made, "name", f"{where}.{kind}"), "" if given is None else given)


def _request_shaped(native: Native) -> Native:
    """The message without keys that a request may not have; most have none, and go out as they are."""
    has_calls = native["role"] == "assistant" and native.get("tool_calls")
    is_plain = native.get("content") and None not in native.values() and (has_calls or "tool_calls" not in native)
    if is_plain and native.keys().isdisjoint(REPLY_KEYS):
        return native
    allowed = (key for key in native if key not in REPLY_KEYS and (native[key] is not None or key in NULLABLE))
    message = {key: native[key] for key in allowed}
    if message["role"] != "assistant" or not message.get("tool_calls"):
        message.pop("tool_calls", None)
    if message.get("content") == []:
        message["content"] = None
    if message.get("content") is None and message["role"] == "tool":
        message["content"] = ""
    return message


def _is_empty(message: Native) -> bool:
    """Whether a message has no content and no calls. An empty text is no content: OpenAI takes it, but other providers
    of this format refuse it, and a model learns nothing from it."""
    return not message.get("content") and not any(message.get(key) for key in OTHER_CONTENT)
