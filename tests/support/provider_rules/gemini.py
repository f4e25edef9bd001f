"""The rules of Gemini contents.

From the API reference (https://ai.google.dev/api/caching#Content, its Python SDK's types), the guides on function
calling and thought signatures, and the API's own error texts. Neighbours of one role are accepted (google/adk-go#1218),
and so are other parts beside function responses, by Vertex AI only before these (Prism-Shadow/agenthub#189).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from contextstash_storage.records import Native

_DATA = {
    "text": "text",
    "inline_data": "inlineData",
    "file_data": "fileData",
    "function_call": "functionCall",
    "function_response": "functionResponse",
    "executable_code": "executableCode",
    "code_execution_result": "codeExecutionResult",
    "tool_call": "toolCall",
    "tool_response": "toolResponse",
}
"""The fields of which a part has one, by the SDK's spelling: the API accepts both."""

_ABOUT = (
    "thought", "thoughtSignature", "thought_signature", "videoMetadata", "video_metadata", "mediaResolution",
    "media_resolution", "mediaProcessing", "media_processing", "partMetadata", "part_metadata",
    "audioTranscription", "audio_transcription", "speechMetadata", "speech_metadata", "documentMetadata",
    "document_metadata", "spreadsheetMetadata", "spreadsheet_metadata", "audioMetadata", "audio_metadata",
)  # fmt: skip


_RESPONSES = "functions"
"""The turn of function responses. Their role is `user`, but Google's API counts them as a turn of their own."""


def gemini_violations(natives: Sequence[Native]) -> list[str]:
    """See `violations`."""
    malformed = [problem for place, native in enumerate(natives) for problem in _structure(place, native)]
    if len(natives) > 1:
        malformed += [f"Content {place} has no role." for place, native in enumerate(natives) if "role" not in native]
    if malformed:  # the rules below read fields that a malformed content lacks
        return malformed
    return [*_turns(natives), *_responses(natives)]


def _structure(place: int, native: Native) -> Iterator[str]:
    if native.get("role", "user") not in ("user", "model"):
        yield f"Content {place} has the role {native.get('role')!r}; only user and model are allowed."
    unknown = [key for key in native if key not in ("role", "parts")]
    if unknown:
        yield f"Content {place} has the key '{unknown[0]}', which a request may not have."
    parts = native.get("parts")
    if not isinstance(parts, list) or not parts:
        yield f"Content {place}: parts must not be empty."
        return
    for index, part in enumerate(parts):
        where = f"Content {place}, part {index}"
        if not isinstance(part, dict):
            yield f"{where} is not an object."
        else:
            yield from _part(where, part, native.get("role"))


def _part(where: str, part: dict[str, Any], role: object) -> Iterator[str]:
    data = {_DATA.get(key, key): value for key, value in part.items() if value is not None and key not in _ABOUT}
    known = [key for key in data if key in _DATA.values()]
    signature = _signature(part)
    if not data:
        yield f"{where} has no data: an empty part is refused."
    if len(known) > 1:
        yield f"{where} has {' and '.join(known)}; a part holds one of them."
    if not isinstance(data.get("text", ""), str) or (data.get("text") == "" and not signature):
        yield f"{where} has no text."
    if signature is not None and not (isinstance(signature, str) and signature):
        yield f"{where}: the thought signature is not a text."
    if "functionCall" in data:
        yield from _call(where, data["functionCall"], role)
    if "functionResponse" in data:
        yield from _response(where, data["functionResponse"], role)


def _signature(part: dict[str, Any]) -> object:
    found = part.get("thoughtSignature")
    return part.get("thought_signature") if found is None else found


def _call(where: str, call: object, role: object) -> Iterator[str]:
    if role != "model":
        yield f"{where}: only the model can call functions."
    if not isinstance(call, dict) or not (isinstance(call.get("name"), str) and call["name"]):
        yield f"{where}: the function call has no name."
    elif not isinstance(call.get("args"), dict | None):
        yield f"{where}: the arguments of the call of {call['name']} are not an object."
    elif not isinstance(call.get("id"), str | None):
        yield f"{where}: the id of the call of {call['name']} is not a text."


def _response(where: str, answer: object, role: object) -> Iterator[str]:
    if role == "model":
        yield f"{where}: a function response is not allowed in a content of the model."
    if not isinstance(answer, dict) or not (isinstance(answer.get("name"), str) and answer["name"]):
        yield f"{where}: the function response has no name."
    elif not isinstance(answer.get("response"), dict):
        yield f"{where}: the response of {answer['name']} is not an object."
    elif not isinstance(answer.get("id"), str | None):
        yield f"{where}: the id of the response of {answer['name']} is not a text."


def _of(native: Native, key: str) -> list[dict[str, Any]]:
    """The calls or responses of a content."""
    snake = {"functionCall": "function_call", "functionResponse": "function_response"}[key]
    found = [part[key] if part.get(key) is not None else part.get(snake) for part in native["parts"]]
    return [value for value in found if value is not None]


def _kind(native: Native) -> str:
    """Whose turn a content is: the user's, the model's or the functions'."""
    return _RESPONSES if _of(native, "functionResponse") else str(native.get("role", "user"))


def _turns(natives: Sequence[Native]) -> Iterator[str]:
    """The user speaks first, and the responses to one content's calls are one content."""
    kinds = [_kind(native) for native in natives]
    if kinds and kinds[0] == "model":
        yield "Content 0 has the role model; the first content must have the role user."
    for place, kind in enumerate(kinds):
        if place and kind == _RESPONSES == kinds[place - 1]:
            yield f"Contents {place - 1} and {place} both hold function responses; merge them into one content."


def _responses(natives: Sequence[Native]) -> Iterator[str]:
    """The next content holds a response to each call, as many as there are calls: "Please ensure that the number of
    function response parts is equal to the number of function call parts of the function call turn"."""
    for place, native in enumerate(natives):
        calls = _of(native, "functionCall")
        following = natives[place + 1] if place + 1 < len(natives) else None
        answers = _of(following, "functionResponse") if following else []
        if calls and len(calls) != len(answers):
            yield f"Content {place} has {len(calls)} function calls, but the next content {len(answers)} responses."
        elif calls:
            yield from _pairs(place, calls, answers)
        if _of(native, "functionResponse") and not (place and _of(natives[place - 1], "functionCall")):
            yield f"Content {place} has function responses, but the content before it no function calls."


def _pairs(place: int, calls: list[dict[str, Any]], answers: list[dict[str, Any]]) -> Iterator[str]:
    """Calls with ids are paired by these, in any order; others by name, in the order of the calls."""
    if all(value.get("id") for value in (*calls, *answers)):
        called, answered = (Counter((value["id"], value["name"]) for value in side) for side in (calls, answers))
        for call_id, name in called - answered:
            yield f"Content {place}: the call {call_id} of {name} has no response in the next content."
        return
    for number, (call, answer) in enumerate(zip(calls, answers, strict=True)):
        if call["name"] != answer["name"]:
            yield f"Content {place}: response {number} is of {answer['name']}, but call {number} of {call['name']}."
        elif call.get("id") and call["id"] != answer.get("id"):
            yield f"Content {place}: response {number} does not have the id {call['id']} of its call."
