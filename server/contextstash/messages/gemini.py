"""Gemini contents (generateContent): parts in turns of `user` and `model`, function responses as objects.

The REST API writes `functionCall`; Google's Python SDK, pydantic dumps and protobuf's own JSON write `function_call`.
The API accepts both, so each is kept as it was given.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from contextstash.messages import base
from contextstash.messages.base import Call, Format, Part, Path, Piece
from contextstash.messages.rules import MISSING_RESULT
from contextstash.safety.sanitize import reminder
from contextstash_storage.errors import BadMessageError
from contextstash_storage.records import Native, Role

ROLES: dict[str, Role] = {"user": "user", "model": "assistant", "function": "tool", "tool": "tool", "system": "system"}
"""`function` and `tool` are how older SDKs mark responses, and `system` a system instruction; a request may only have
`user` and `model`."""

_FOREIGN_KEYS = ("type", "part_kind", "kind")
"""Fields by which other libraries mark the parts of their messages (AI SDK, pydantic-ai)."""

DATA_KEYS = (
    "functionCall", "functionResponse", "text", "inlineData", "fileData", "executableCode", "codeExecutionResult",
    "toolCall", "toolResponse",
)  # fmt: skip
"""The fields of which a part has exactly one: `oneof data` of Part, https://ai.google.dev/api/caching#Part"""

MEDIA_KEYS = ("inlineData", "fileData")

ABOUT_KEYS = ("thought", "thoughtSignature")
"""The fields that describe a part's data, and that a part may have without any."""

PartJson = Mapping[str, Any]


@cache
def snake(key: str) -> str:
    """The key as the Python SDK spells it."""
    return re.sub(r"(?<=[a-z])([A-Z])", lambda found: f"_{found[1].lower()}", key)


_DATA = {spelled: key for key in DATA_KEYS for spelled in (key, snake(key))}
_KNOWN = {*_DATA, *(spelled for key in ABOUT_KEYS for spelled in (key, snake(key)))}


def get(value: Mapping[str, Any], key: str) -> Any:
    """The value of a field in either spelling; None if it is missing or null. `key` is the REST spelling."""
    return value.get(_spelling(value, key))


def _spelling(value: Mapping[str, Any], key: str) -> str:
    """How the field is spelled there."""
    return key if value.get(key) is not None else snake(key)


def _data_keys(part: PartJson) -> list[str]:
    """The known data fields that the part has; one in a valid part."""
    return list(dict.fromkeys([_DATA[key] for key, value in part.items() if value is not None and key in _DATA]))


def _other_keys(part: PartJson) -> list[str]:
    """The part's fields that are not known here, as given: data of a kind that Google added later."""
    return [key for key, value in part.items() if value is not None and key not in _KNOWN]


def _is_signed(part: PartJson) -> bool:
    """Whether the part has a thought signature. Such a part goes back exactly as it came, an empty text included:
    https://ai.google.dev/gemini-api/docs/thought-signatures"""
    return bool(get(part, "thoughtSignature"))


class GeminiFormat(Format):
    """Gemini contents, in the spelling of the REST API or of Google's SDK.

    A function response is one block of type `tool_result`, followed by the media nested in it. Its text is the object's
    only string, or the text of its MCP content, or else its JSON; a replacement is an object again. Calls and responses
    without ids get one from their name and their number in the content, as the API pairs them. A content of responses
    alone has the role `tool`.
    """

    name = "gemini"
    own_keys = frozenset({"parts"})
    usage_keys = ("usageMetadata", "usage_metadata", "usage")
    model_keys = ("modelVersion", "model_version", "model")
    group_keys = ("responseId", "response_id")
    schema_key = "parameters_json_schema"

    def pieces(self, native: Mapping[str, Any]) -> tuple[Role, list[Piece]]:
        if "type" in native:
            raise BadMessageError("it has a 'type', as messages of other formats do. Record it in its own format.")
        if "candidates" in native:
            raise BadMessageError("this is a whole API response; record its candidates[0].content.")
        if "content" in native:
            raise BadMessageError("it has 'content'; expected Gemini's 'parts'. Record it in its own format.")
        without_role = native.get("role") is None and "parts" in native
        role: Role = "user" if without_role else base.need_role(native, ROLES, "'user' or 'model'")
        parts = [] if native.get("parts") is None and native.get("role") == "model" else native.get("parts")
        if not isinstance(parts, list):
            raise BadMessageError(f"parts is {base.kind_of(parts)}; expected a list of parts.")
        numbers: Counter[tuple[str, str]] = Counter()
        pieces = [found for place, part in enumerate(parts) for found in _read_part(part, place, numbers)]
        answers = [found.block.call_id is not None and found.block.type != "tool_call" for found in pieces]
        if role == "user" and answers and all(answers):
            role = "tool"
        return role, pieces

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

    def tool_definitions(self, tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{"function_declarations": tools}]

    def sent_parts(self, native: Native) -> list[Part]:
        """A content of the model with nothing but summaries of thoughts means nothing. What a system message
        says behind others has no role of its own: it is marked in the user's."""
        role = native.get("role")
        by_model, parts = role == "model", native.get("parts") or ()
        if role == "system":
            said = [part["text"] for part in parts if part.get("text")]
            return [Part({"text": reminder(each)}, False, native, instructs=True) for each in said]
        sent = [shown for part in parts if (shown := _sent(part, native, by_model)) is not None]
        speaks = any(part.native.get("thought") is not True or _is_signed(part.native) for part in sent)
        return sent if speaks or not by_model else []

    def missing(self, call: Call) -> Native:
        """An error, in the call's spelling."""
        key = "functionResponse" if "functionCall" in call.native else "function_response"
        return {key: {**_named(get(call.native, "functionCall")), "response": {"error": MISSING_RESULT}}}

    def orphan(self, part: Part) -> list[Native]:
        answer = get(part.native, "functionResponse")
        response = answer.get("response") or {}
        key = _only_text(response)
        text = base.orphan_text(response[key] if key else base.as_json(response) if response else "")
        return [*([{"text": text}] if text else []), *filter(_data_keys, answer.get("parts") or ())]

    def fitted(self, result: Native, call: Call) -> Native:
        """The answer with the call's name, and with its id if the call has one: newer models refuse other ids."""
        key = _spelling(result, "functionResponse")
        given, wanted = result[key], _named(get(call.native, "functionCall"))
        is_object = isinstance(given.get("response"), dict)
        if is_object and all(given.get(name) == value for name, value in wanted.items()):
            return result
        response = given["response"] if is_object else {"output": ""}
        return {**result, key: {**given, **wanted, "response": response}}

    def joined(self, messages: Sequence[Sequence[Part]]) -> list[Native]:
        roles = ("user", "model")
        sent = ({"role": roles[parts[0].by_model], "parts": [part.native for part in parts]} for parts in messages)
        return [base.in_shape_of(parts[0].source, values) for parts, values in zip(messages, sent, strict=True)]


def _named(call: Mapping[str, Any]) -> dict[str, str]:
    """The name, and the id if there is one: without ids, the API pairs calls and responses by name and order."""
    return {**({"id": call_id} if (call_id := base.name_of(call.get("id"))) else {}), "name": call["name"]}


def _sent(part: Native, native: Native, by_model: bool) -> Part | None:
    """The part of this content; None if it has no data. A signature without data, as a stream may end, becomes an empty
    text; a call of the user, or a response of the model, a text.

    Merged contents may hold an id twice: then the name decides. If the call or the response has no id, the name and
    the order pair them."""
    if part.get("text"):
        return Part(part, by_model, native)
    kind = next(iter(_data_keys(part)), "")
    if kind in ("", "text"):
        shown = part if kind or _other_keys(part) else {**part, "text": ""}
        return Part(shown, by_model, native) if shown.get("text") != "" or _is_signed(part) else None
    if kind == ("functionResponse" if by_model else "functionCall"):
        return Part({"text": base.as_json(part)}, by_model, native)
    if kind not in ("functionCall", "functionResponse"):
        return Part(part, by_model, native)
    data = get(part, kind)
    name, given = data["name"], base.name_of(data.get("id"))
    if by_model:
        keys = (f"id:{given}", f"id:{given}:{name}", f"name:{name}") if given else (f"unnamed:{name}", f"name:{name}")
        return Part(part, True, native, None, (Call(keys, part, given is None),))
    names = (f"id:{given}:{name}", f"id:{given}", f"unnamed:{name}") if given else (f"name:{name}",)
    return Part(part, False, native, None, (), names)


def _read_part(value: object, place: int, numbers: Counter[tuple[str, str]]) -> list[Piece]:
    where = f"parts[{place}]"
    part = base.need_object(value, where)
    if foreign := [key for key in _FOREIGN_KEYS if key in part]:
        raise BadMessageError(f"{where} has a '{foreign[0]}', as parts of other formats do; expected Gemini's parts.")
    found = _data_keys(part)
    if len(found) > 1:
        raise BadMessageError(f"{where} has {' and '.join(found)}; expected one of them.")
    if not found:
        return [base.opaque(part)] if _other_keys(part) else []
    key, spelled = found[0], _spelling(part, found[0])
    data = part[spelled]
    if key == "text":
        return [base.piece("thinking" if part.get("thought") is True else "text", base.need_text(part, "text", where))]
    where = f"{where}.{spelled}"
    data = base.need_object(data, where)
    if key == "functionCall":
        return [_read_call(data, where, numbers)]
    if key == "functionResponse":
        return _read_response(data, where, ("parts", place, spelled), numbers)
    if key in MEDIA_KEYS:
        return [_read_media(part, data)]
    if key == "executableCode":
        return [base.call_piece(None, "code_execution", data.get("code") or "")]
    return [base.opaque({key: data})]


def _read_call(call: Mapping[str, Any], where: str, numbers: Counter[tuple[str, str]]) -> Piece:
    name = base.need_text(call, "name", where, empty=False)
    arguments = call.get("args")
    if arguments is not None and not isinstance(arguments, dict):
        raise BadMessageError(f"{where}.args is {base.kind_of(arguments)}; expected an object.")
    return base.call_piece(_call_id(call, name, "call", numbers), name, arguments or {})


def _read_response(answer: Mapping[str, Any], where: str, path: Path, numbers: Counter[tuple[str, str]]) -> list[Piece]:
    name = base.need_text(answer, "name", where, empty=False)
    response = answer.get("response")
    if response is not None and not isinstance(response, dict):
        raise BadMessageError(
            f"{where}.response is {base.kind_of(response)}; expected an object, such as {{'output': …}}."
        )
    nested = answer.get("parts")
    if nested is not None and not isinstance(nested, list):
        raise BadMessageError(f"{where}.parts is {base.kind_of(nested)}; expected a list of parts.")
    pieces = [base.piece("text", _response_text(response or {}))]
    for place, value in enumerate(nested or ()):
        part = base.need_object(value, f"{where}.parts[{place}]")
        data = next((data for key in MEDIA_KEYS if isinstance(data := get(part, key), dict)), None)
        pieces.append(base.opaque(part) if data is None else _read_media(part, data))
    call_id = _call_id(answer, name, "response", numbers)
    return base.result_pieces(call_id, pieces, path, tool=name, is_error=_is_error(response or {}))


def _read_media(part: Mapping[str, Any], data: Mapping[str, Any]) -> Piece:
    kind = str(get(data, "mimeType") or "")
    if kind.startswith("image/"):
        return base.piece("image")
    name = get(data, "displayName") or get(data, "fileUri")
    return base.piece("document", name if isinstance(name, str) else "")


def _call_id(value: Mapping[str, Any], name: str, side: str, numbers: Counter[tuple[str, str]]) -> str:
    """The id, or one of the name and, from the second of that name in the content on, its number."""
    if given := base.name_of(value.get("id")):
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
    """Its only string; the texts of an MCP tool result that holds nothing else, as ADK and the SDK's MCP sessions pass
    them on; or else its JSON."""
    if key := _only_text(response):
        return str(response[key])
    content = response.get("content")
    if isinstance(content, list) and content and response.keys() <= {"content", "isError", "_meta"}:
        texts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
        readable = [text for text in texts if isinstance(text, str)]
        if len(readable) == len(content):
            return "\n".join(readable)
    return base.as_json(response) if response else ""


def _is_error(response: Mapping[str, Any]) -> bool:
    """Google's reference reserves the key `error` for failures; `isError` is MCP's."""
    return bool(response.get("error")) or response.get("isError") is True
