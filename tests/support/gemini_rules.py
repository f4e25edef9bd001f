"""What Google's generateContent refuses, written down again without the product's rules, in Google's own words."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from typing import Any

REQUEST = {"contents", "systemInstruction", "tools", "toolConfig", "generationConfig", "safetySettings", "model"}
CONTENT = {"role", "parts"}
DATA = {"text", "inlineData", "fileData", "functionCall", "functionResponse", "executableCode", "codeExecutionResult"}
PART = {*DATA, "thought", "thoughtSignature"}
CALL = {"id", "name", "args"}
RESPONSE = {"id", "name", "response", "parts"}


class RefusedError(Exception):
    """The text of an INVALID_ARGUMENT."""


def signature_of(call: dict[str, Any]) -> str:
    """The signature that this provider gives to a call: of its name and arguments."""
    said = json.dumps([call["name"], call.get("args") or {}], sort_keys=True).encode()
    return base64.b64encode(hmac.new(b"loopback", said, hashlib.sha512).digest()).decode()


def canonical(value: dict[str, Any], known: set[str], where: str) -> dict[str, Any]:
    """The fields of a protobuf message in their REST spelling. Unknown ones are refused, null ones are unset."""
    found: dict[str, Any] = {}
    for key, field in value.items():
        name = re.sub(r"_([a-z])", lambda match: match[1].upper(), key)
        if name not in known:
            raise RefusedError(
                f"Invalid JSON payload received. Unknown name \"{key}\" at '{where}': Cannot find field."
            )
        if field is not None:
            found[name] = field
    return found


def checked(body: dict[str, Any], *, signed: bool) -> list[dict[str, Any]]:
    """The contents of a request in their REST spelling. Raises RefusedError."""
    request = canonical(body, REQUEST, "request")
    contents = [_content(content, f"contents[{place}]") for place, content in enumerate(request.get("contents") or [])]
    if not contents:
        raise RefusedError("* GenerateContentRequest.contents: contents is not specified")
    _check_turns(contents)
    for place, content in enumerate(contents):
        _check_pairs(contents, place, _all(content, "functionCall"), _all(content, "functionResponse"))
    if signed:
        _check_signatures(contents)
    return contents


def _content(value: dict[str, Any], where: str) -> dict[str, Any]:
    content = canonical(value, CONTENT, where)
    if content.get("role") not in ("user", "model"):
        raise RefusedError("Please use a valid role: user, model.")
    if not content.get("parts"):
        raise RefusedError(f"* GenerateContentRequest.{where}.parts: contents.parts must not be empty.")
    parts = [_part(part, f"{where}.parts[{place}]") for place, part in enumerate(content["parts"])]
    return {"role": content["role"], "parts": parts}


def _part(value: dict[str, Any], where: str) -> dict[str, Any]:
    part = canonical(value, PART, where)
    if len(DATA & part.keys()) != 1:
        raise RefusedError(f"* {where}.data: required oneof field 'data' must have one initialized field")
    if part.get("text") == "" and "thoughtSignature" not in part:
        raise RefusedError("Unable to submit request because it has an empty text parameter.")
    for name, known, inner in (("functionCall", CALL, "args"), ("functionResponse", RESPONSE, "response")):
        if name in part:
            part[name] = canonical(part[name], known, f"{where}.{name}")
            if not part[name].get("name"):
                raise RefusedError(f"* {where}.{name}.name: Name cannot be empty.")
            if not isinstance(part[name].get(inner, {}), dict):
                raise RefusedError(
                    f"Invalid value at '{where}.{name}.{inner}' (type.googleapis.com/google.protobuf.Struct)"
                )
    return part


def _all(content: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [part[name] for part in content["parts"] if name in part]


def _turn_of(content: dict[str, Any]) -> str:
    return "function" if _all(content, "functionResponse") else str(content["role"])


def _check_turns(contents: list[dict[str, Any]]) -> None:
    turns = [_turn_of(content) for content in contents]
    for before, turn, content in zip(["", *turns], turns, contents, strict=False):
        if turn == "model" and before not in ("user", "function", "model"):
            raise RefusedError(
                "Please ensure that function call turn comes immediately after a user turn or after a function"
                " response turn."
            )
        if turn == "function" and len(_all(content, "functionResponse")) != len(content["parts"]):
            raise RefusedError("Requests ending with a model turn are not supported.")  # sic: Vertex AI
    if turns[-1] == "model":
        raise RefusedError("Please ensure that multiturn requests ends with a user role or a function response.")


def _check_pairs(
    contents: list[dict[str, Any]], place: int, calls: list[dict[str, Any]], answers: list[dict[str, Any]]
) -> None:
    following = _all(contents[place + 1], "functionResponse") if place + 1 < len(contents) else []
    if calls and len(calls) != len(following):
        raise RefusedError(
            "Please ensure that the number of function response parts is equal to the number of function call parts"
            " of the function call turn."
        )
    if answers and not (place and _all(contents[place - 1], "functionCall")):
        raise RefusedError("Please ensure that function response turn comes immediately after a function call turn.")
    ids = [call.get("id") for call in calls]
    if all(ids) and sorted(map(str, ids)) != sorted(str(answer.get("id")) for answer in following):
        raise RefusedError("functionResponse.id does not match functionCall.id")
    if not all(ids) and [call["name"] for call in calls] != [answer["name"] for answer in following]:
        raise RefusedError("The function responses do not have the names of the function calls, in their order.")


def _check_signatures(contents: list[dict[str, Any]]) -> None:
    """Each signature is that of its call, and the first call of each step of the current turn has one."""
    asked = [place for place, content in enumerate(contents) if _turn_of(content) == "user"]
    for place, content in enumerate(contents):
        first = True
        for part in content["parts"]:
            call, signature = part.get("functionCall"), part.get("thoughtSignature")
            if signature is not None and call is not None and not _is_own(signature, call):
                raise RefusedError("Invalid thought signature.")
            if call is not None and first and signature is None and place > (asked or [0])[-1]:
                raise RefusedError("Function call is missing a thought_signature in functionCall parts.")
            first = first and call is None


def _is_own(signature: str, call: dict[str, Any]) -> bool:
    """Whether the signature has the same bytes; an SDK may send them in the alphabet for URLs."""
    standard = signature.replace("-", "+").replace("_", "/")
    return base64.b64decode(standard + "=" * (-len(standard) % 4)) == base64.b64decode(signature_of(call))
