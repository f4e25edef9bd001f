"""Gemini contents (generateContent): parts in turns of `user` and `model`, function responses as objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from contextstash.messages.base import Format, Path, Reading, ToolSchema
from contextstash.messages.block_reader import (
    Piece,
    as_json,
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
)
from contextstash.messages.gemini.assembly import assemble
from contextstash.messages.gemini.parts import data_keys, get, id_of, other_keys, spelling
from contextstash_storage.errors import BadMessageError
from contextstash_storage.records import Native, Role

ROLES: dict[str, Role] = {
    "user": "user",
    "model": "assistant",
    "function": "tool",
    "tool": "tool",
    "system": "system",
}
"""`function` and `tool` are how older SDKs mark responses, and `system` a system instruction; a request may only have
`user` and `model`."""

_FOREIGN_KEYS = ("type", "part_kind", "kind")
"""Fields by which other libraries mark the parts of their messages (AI SDK, pydantic-ai)."""


class GeminiFormat(Format):
    """Gemini contents, in the spelling of the REST API or of Google's SDK.

    A function response is one block of type `tool_result`, followed by the media nested in it. Its text is the object's
    only string, or the text of its MCP content, or else its JSON; a replacement is an object again. Calls and responses
    without ids get one from their name and their number in the content, as the API pairs them. A content of responses
    alone has the role `tool`.
    """

    name = "gemini"

    def matches(self, native: Native) -> float:
        if not isinstance(native, dict) or "content" in native or "type" in native:
            return 0.0
        role, parts = native.get("role"), native.get("parts")
        if role is not None and (not isinstance(role, str) or role not in ROLES):
            return 0.0
        if parts is None:
            return 0.9 if role == "model" else 0.0
        if not isinstance(parts, list):
            return 0.0
        return min((_matches_part(part) for part in parts), default=0.9)

    def read(self, native: Native) -> Reading:
        need_object(native, "the content")
        role = _role(native)
        pieces = [found for part in _read_parts(native) for found in part]
        if role == "user" and pieces and all(_answers(found) for found in pieces):
            role = "tool"
        usage, model = get(native, "usageMetadata"), get(native, "modelVersion")
        about = {"usage": usage or native.get("usage"), "model": model or native.get("model")}
        return reading(about, role, pieces, group=get(native, "responseId"))

    def in_place_of(self, native: Native, text: str, old: Any) -> Any:
        """A response with this text, an object as the API requires, and without nested media. An output stays under its
        key, because the model has seen the tool answer like that."""
        response = old.get("response") or {}
        field = _only_text(response) or ("error" if _is_error(response) else "output")
        return {**{name: value for name, value in old.items() if name != "parts"}, "response": {field: text}}

    def without_thinking(self, native: Native) -> Native | None:
        """The content unchanged. Edits of earlier contents do not invalidate signatures, and the API refuses function
        calls without theirs."""
        return native

    def user_message(self, text: str) -> Native:
        return {"role": "user", "parts": [{"text": text}]}

    assemble = staticmethod(assemble)

    def tool_definitions(self, tools: Sequence[ToolSchema]) -> list[dict[str, Any]]:
        declared = [
            {"name": each.name, "description": each.description, "parameters_json_schema": each.arguments}
            for each in tools
        ]
        return [{"function_declarations": declared}]


def _matches_part(part: object) -> float:
    if not isinstance(part, dict) or any(key in part for key in _FOREIGN_KEYS):
        return 0.0
    return 1.0 if data_keys(part) else 0.2


def _answers(found: Piece) -> bool:
    return found.block.call_id is not None and found.block.type != "tool_call"


def _role(native: Mapping[str, Any]) -> Role:
    if "candidates" in native:
        raise BadMessageError("this is a whole API response; record its candidates[0].content.")
    if native.get("role") is None and "parts" in native:
        return "user"
    return need_role(native, ROLES, "'user' or 'model'")


def _read_parts(native: Mapping[str, Any]) -> list[list[Piece]]:
    """The pieces of each part."""
    if "content" in native:
        raise BadMessageError("it has 'content'; expected Gemini's 'parts'. Record it in its own format.")
    parts = native.get("parts")
    if parts is None:
        return []
    if not isinstance(parts, list):
        raise BadMessageError(f"parts is {kind_of(parts)}; expected a list of parts.")
    numbers: Counter[tuple[str, str]] = Counter()
    return [_read_part(part, place, numbers) for place, part in enumerate(parts)]


def _read_part(value: object, place: int, numbers: Counter[tuple[str, str]]) -> list[Piece]:
    where = f"parts[{place}]"
    part = need_object(value, where)
    if "type" in part:
        raise BadMessageError(f"{where} has a 'type', as parts of other formats do; expected Gemini's parts.")
    found = data_keys(part)
    if len(found) > 1:
        raise BadMessageError(f"{where} has {' and '.join(found)}; expected one of them.")
    if not found:
        return [opaque_media(part)] if other_keys(part) else []
    key = found[0]
    data = get(part, key)
    if key == "text":
        return [_read_text(part, data, where)]
    spelled = spelling(part, key)
    where = f"{where}.{spelled}"
    data = need_object(data, where)
    if key == "functionCall":
        return [_read_call(data, where, numbers)]
    if key == "functionResponse":
        return _read_response(data, where, ("parts", place, spelled), numbers)
    if key in ("inlineData", "fileData"):
        return [_read_media(part, data)]
    if key == "executableCode":
        return [call_piece(None, "code_execution", data.get("code") or "")]
    return [opaque({key: data})]


def _read_text(part: Mapping[str, Any], text: object, where: str) -> Piece:
    if not isinstance(text, str):
        raise BadMessageError(f"{where}.text is {kind_of(text)}; expected a string.")
    return piece("thinking" if part.get("thought") is True else "text", text)


def _read_call(call: Mapping[str, Any], where: str, numbers: Counter[tuple[str, str]]) -> Piece:
    name = need_text(call, "name", where, empty=False)
    arguments = call.get("args")
    if arguments is not None and not isinstance(arguments, dict):
        raise BadMessageError(f"{where}.args is {kind_of(arguments)}; expected an object.")
    return call_piece(_call_id(call, name, "call", numbers), name, arguments or {})


def _read_response(answer: Mapping[str, Any], where: str, path: Path, numbers: Counter[tuple[str, str]]) -> list[Piece]:
    name = need_text(answer, "name", where, empty=False)
    response = answer.get("response")
    if response is not None and not isinstance(response, dict):
        raise BadMessageError(f"{where}.response is {kind_of(response)}; expected an object, such as {{'output': …}}.")
    nested = answer.get("parts")
    if nested is not None and not isinstance(nested, list):
        raise BadMessageError(f"{where}.parts is {kind_of(nested)}; expected a list of parts.")
    pieces = [piece("text", _response_text(response or {}))]
    for place, value in enumerate(nested or ()):
        pieces.append(_read_nested(need_object(value, f"{where}.parts[{place}]")))
    call_id = _call_id(answer, name, "response", numbers)
    return result_pieces(call_id, pieces, path, tool=name, is_error=_is_error(response or {}))


def _read_nested(part: Mapping[str, Any]) -> Piece:
    for key in ("inlineData", "fileData"):
        data = get(part, key)
        if isinstance(data, dict):
            return _read_media(part, data)
    return opaque_media(part)


def _read_media(part: Mapping[str, Any], data: Mapping[str, Any]) -> Piece:
    kind = str(get(data, "mimeType") or "")
    if kind.startswith("image/"):
        return image_piece(get(data, "data"))
    if kind.startswith(("audio/", "video/")):
        return opaque_media({key: value for key, value in part.items() if value is not None})
    name = get(data, "displayName") or get(data, "fileUri")
    return piece("document", name if isinstance(name, str) else "")


def _call_id(value: Mapping[str, Any], name: str, side: str, numbers: Counter[tuple[str, str]]) -> str:
    """The id, or one of the name and, from the second of that name in the content on, its number."""
    if given := id_of(value):
        return given
    numbers[side, name] += 1
    number = numbers[side, name]
    return f"function_call:{name}" if number == 1 else f"function_call:{name}#{number}"


def _only_text(response: Mapping[str, Any]) -> str | None:
    """The key of the response's only field, if that is a string: `output`, `result`, `error`, …"""
    if len(response) != 1:
        return None
    [(key, value)] = response.items()
    return key if isinstance(value, str) else None


def _response_text(response: Mapping[str, Any]) -> str:
    if key := _only_text(response):
        return str(response[key])
    texts = _mcp_texts(response)
    if texts is not None:
        return "\n".join(texts)
    return as_json(response) if response else ""


def _mcp_texts(response: Mapping[str, Any]) -> list[str] | None:
    """The texts of an MCP tool result, as ADK and the SDK's MCP sessions pass them on; None if it is something else or
    holds more than text."""
    content = response.get("content")
    if not isinstance(content, list) or not content or not response.keys() <= {"content", "isError", "_meta"}:
        return None
    texts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
    readable = [text for text in texts if isinstance(text, str)]
    return readable if len(readable) == len(content) else None


def _is_error(response: Mapping[str, Any]) -> bool:
    """Google's reference reserves the key `error` for failures; `isError` is MCP's."""
    return bool(response.get("error")) or response.get("isError") is True
