"""OpenAI Chat Completions: tool calls in a field next to the content, results as messages of role `tool`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from contextstash.messages.base import Format, Reading, ToolSchema
from contextstash.messages.block_reader import (
    Piece,
    call_piece,
    image_piece,
    kind_of,
    need_object,
    need_role,
    need_text,
    opaque,
    opaque_media,
    piece,
    reading,
    result_pieces,
    role_of,
)
from contextstash.messages.openai_chat.assembly import assemble, is_empty, legacy_call_id
from contextstash_storage.errors import BadMessageError
from contextstash_storage.records import Native, Role

ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}

OWN_PARTS = frozenset({"image_url", "input_audio", "refusal", "file"})
SIGNED_THINKING = ("thinking_blocks", "reasoning_details")
"""Fields in which gateways to Anthropic store thinking with its signatures: LiteLLM and OpenRouter."""

OWN_KEYS = ("tool_calls", "function_call", "tool_call_id", "refusal", "audio", "reasoning_content", *SIGNED_THINKING)

PLAIN_THINKING = ("reasoning_content", "reasoning")

_FOREIGN_PARTS = frozenset({"tool_use", "tool_result", "server_tool_use", "function_call", "input_text"})
"""Parts that belong to another format. Refused: as unknown parts they would hide tool calls from every rule."""


class OpenAIChatFormat(Format):
    """OpenAI Chat Completions, and the fields that compatible APIs add (`reasoning_content`, `usage` on a message).

    A tool message is one block of type `tool_result`. Images in it follow as separate blocks with its call id, and
    are removed when it is replaced. The legacy `function_call` is paired with its result by its name.
    """

    name = "openai-chat"

    def matches(self, native: Native) -> float:
        if not isinstance(native, dict) or role_of(native) not in ROLES:
            return 0.0
        if "type" in native or "stop_reason" in native or ("parts" in native and "content" not in native):
            return 0.0
        if native["role"] in ("tool", "function") or any(native.get(key) is not None for key in OWN_KEYS):
            return 1.0
        content = native.get("content")
        if content is None or isinstance(content, str):
            return 0.5
        if not isinstance(content, list):
            return 0.0
        scores = [_matches_part(part) for part in content]
        return 0.0 if 0.0 in scores else max(scores, default=0.3)

    def read(self, native: Native) -> Reading:
        need_object(native, "the message")
        if "choices" in native and role_of(native) not in ROLES:
            raise BadMessageError("this is a whole API response; record its choices[0].message.")
        role = need_role(native, ROLES, f"one of {', '.join(ROLES)}")
        pieces = _read_result(native) if role == "tool" else _read_content(native)
        if role == "assistant":
            pieces = [*_thinking(native), *pieces, *_spoken(native), *_calls(native)]
        return reading(native, role, pieces, group=native.get("id") if role == "assistant" else None)

    def in_place_of(self, native: Native, text: str, old: Any) -> Any:
        return [{"type": "text", "text": text}] if isinstance(old, list) else text

    def without_thinking(self, native: Native) -> Native | None:
        """A copy without the signed thinking of a Claude model behind a gateway. Other reasoning stays: DeepSeek and
        similar APIs refuse tool calls without it, and Gemini's signatures belong to the calls."""
        if not any(_is_anthropic(part) for part in _signed_parts(native)):
            return native
        left = {key: value for key, value in native.items() if key not in (*SIGNED_THINKING, *PLAIN_THINKING)}
        return None if is_empty(left) else left

    def user_message(self, text: str) -> Native:
        return {"role": "user", "content": text}

    def system_message(self, text: str) -> Native | None:
        return {"role": "system", "content": text}

    assemble = staticmethod(assemble)

    def tool_definitions(self, tools: Sequence[ToolSchema]) -> list[dict[str, Any]]:
        functions = [
            {"name": each.name, "description": each.description, "parameters": each.arguments} for each in tools
        ]
        return [{"type": "function", "function": function} for function in functions]


def _matches_part(part: object) -> float:
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        return 0.0
    kind = part["type"]
    if kind in OWN_PARTS:
        return 1.0
    if kind in _FOREIGN_PARTS or kind.startswith("output_") or kind.endswith("thinking"):
        return 0.0
    return 0.5 if kind == "text" else 0.2


def _read_result(native: Mapping[str, Any]) -> list[Piece]:
    name = native.get("name")
    tool = name if isinstance(name, str) and name else None
    if native["role"] == "function":
        call_id = legacy_call_id(need_text(native, "name", "the message", empty=False))
    else:
        call_id = need_text(native, "tool_call_id", "the message", empty=False)
    return result_pieces(call_id, _read_content(native), ("content",), tool=tool)


def _thinking(native: Mapping[str, Any]) -> Iterator[Piece]:
    for key in PLAIN_THINKING:
        text = native.get(key)
        if isinstance(text, str) and text:
            yield piece("thinking", text)
            return
    signed = _signed_parts(native)
    texts = [part.get(key) for part in signed for key in ("thinking", "text", "summary")]
    if signed:
        yield piece("thinking", "\n".join(text for text in texts if isinstance(text, str)))


def _signed_parts(native: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    lists = [native.get(key) for key in SIGNED_THINKING]
    return [part for parts in lists if isinstance(parts, list) for part in parts if isinstance(part, dict)]


def _is_anthropic(part: Mapping[str, Any]) -> bool:
    """Whether this is Anthropic's thinking. OpenRouter names the provider; LiteLLM stores Anthropic's own blocks."""
    return str(part.get("format") or "anthropic").startswith("anthropic")


def _read_content(native: Mapping[str, Any]) -> list[Piece]:
    content = native.get("content")
    if content is None or isinstance(content, str):
        return [piece("text", content)] if content else []
    if not isinstance(content, list):
        raise BadMessageError(f"content is {kind_of(content)}; expected a string or a list of parts.")
    return [_read_part(part, f"content[{place}]") for place, part in enumerate(content)]


def _read_part(value: object, where: str) -> Piece:
    part = need_object(value, where)
    kind = need_text(part, "type", where)
    if kind in _FOREIGN_PARTS:
        raise BadMessageError(
            f"{where} is a '{kind}' of another format; expected OpenAI Chat parts. Record it in its own format."
        )
    if kind == "text":
        return piece("text", need_text(part, "text", where))
    if kind == "refusal":
        return piece("text", need_text(part, "refusal", where))
    if kind == "image_url":
        url = part.get("image_url")
        return image_piece(url.get("url") if isinstance(url, dict) else url)
    if kind == "file":
        return piece("document", _file_name(part))
    if kind == "input_audio":
        return opaque_media(part)
    return opaque(part)


def _file_name(part: Mapping[str, Any]) -> str:
    file = part.get("file")
    name = file.get("filename") if isinstance(file, dict) else None
    return name if isinstance(name, str) else ""


def _spoken(native: Mapping[str, Any]) -> Iterator[Piece]:
    """A refusal, and the transcript of audio."""
    refusal = native.get("refusal")
    if isinstance(refusal, str) and refusal:
        yield piece("text", refusal)
    audio = native.get("audio")
    transcript = audio.get("transcript") if isinstance(audio, dict) else None
    if isinstance(transcript, str):
        yield piece("text", transcript)


def _calls(native: Mapping[str, Any]) -> Iterator[Piece]:
    calls = native.get("tool_calls")
    if calls is not None and not isinstance(calls, list):
        raise BadMessageError(f"tool_calls is {kind_of(calls)}; expected a list.")
    for place, value in enumerate(calls or ()):
        where = f"tool_calls[{place}]"
        call = need_object(value, where)
        call_id = need_text(call, "id", where, empty=False)
        if call.get("type") == "custom":
            custom = need_object(call.get("custom"), f"{where}.custom")
            yield call_piece(call_id, need_text(custom, "name", f"{where}.custom"), custom.get("input", ""))
        else:
            yield _function_call(call_id, call.get("function"), f"{where}.function")
    if native.get("function_call") is not None:
        legacy = need_object(native["function_call"], "function_call")
        name = need_text(legacy, "name", "function_call", empty=False)
        yield _function_call(legacy_call_id(name), legacy, "function_call")


def _function_call(call_id: str, value: object, where: str) -> Piece:
    function = need_object(value, where)
    arguments = function.get("arguments", "")
    return call_piece(call_id, need_text(function, "name", where), "" if arguments is None else arguments)
