"""OpenAI Responses: a flat list in which each message, reasoning, call and output is an item of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from contextstash.messages.base import Format, Reading, ToolSchema
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
    role_of,
)
from contextstash.messages.openai_responses.assembly import (
    APPROVAL_REQUEST,
    APPROVAL_RESPONSE,
    INPUT_ROLES,
    answered_id_of,
    assemble,
    call_id_of,
    is_input,
    item_type,
)
from contextstash_storage.errors import BadMessageError
from contextstash_storage.records import Native, Role

_ROLES: dict[str, Role] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
}
_OTHER_TYPES = frozenset(
    {
        "reasoning",
        "tool_search_output",
        "item_reference",
        "compaction",
        "context_compaction",
        "compaction_summary",
        "mcp_list_tools",
        APPROVAL_REQUEST,
        APPROVAL_RESPONSE,
    }
)
_CALLS_WITH_ID = (APPROVAL_REQUEST, "computer_call", "local_shell_call")
"""Calls that the client answers by their id, or that may not be sent without one."""

_TEXT_PARTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text")
_FOREIGN_PARTS = ("tool_use", "tool_result", "thinking", "redacted_thinking", "image_url")


class OpenAIResponsesFormat(Format):
    """OpenAI Responses items; each item is one message.

    Calls that the client answers have their `call_id`. Calls of the provider's own tools (web search, file search, code
    interpreter, MCP) have none: the call and its result are one item. A computer call is answered by a screenshot,
    which no text can replace: it is read as an image with the call's id, not as a tool result. Other outputs are one
    block of type `tool_result`, followed by the images and files nested in it.
    """

    name = "openai-responses"

    def matches(self, native: Native) -> float:
        if not isinstance(native, dict) or "stop_reason" in native:
            return 0.0
        kind = item_type(native)
        if kind == "message":
            return _matches_message(native)
        if "role" in native:
            return 0.0
        return 1.0 if kind in _OTHER_TYPES or kind.endswith(("_call", "_call_output")) else 0.0

    def read(self, native: Native) -> Reading:
        need_object(native, "the item")
        kind = item_type(native)
        if not kind:
            raise BadMessageError(_no_item(native))
        if kind == "message":
            role = need_role(native, _ROLES, f"assistant, {', '.join(INPUT_ROLES)}")
            pieces = _read_parts(native.get("content"), "content")
        elif kind == "reasoning":
            role, pieces = "assistant", [piece("thinking", _reasoning_text(native))]
        else:
            role = "tool" if is_input(native) else "assistant"
            pieces = list(_read_item(native, kind))
        return reading(native, role, pieces, group=native.get("response_id"))

    def in_place_of(self, native: Native, text: str, old: Any) -> Any:
        if item_type(native) == "shell_call_output":
            last = old[-1] if isinstance(old, list) and old else {}
            outcome = last.get("outcome", {"type": "exit", "exit_code": 0})
            return [{"stdout": text, "stderr": "", "outcome": outcome}]
        return [{"type": "input_text", "text": text}] if isinstance(old, list) else text

    def without_thinking(self, native: Native) -> Native | None:
        """None for reasoning. Another item of the model loses its id: by that the API knows that there was reasoning,
        and refuses the item ("was provided without its required 'reasoning' item"). Calls of the provider's own tools
        cannot be sent without their ids: they are left out."""
        kind = item_type(native)
        if kind == "reasoning":
            return None
        if is_input(native) or kind in _CALLS_WITH_ID or not isinstance(native.get("id"), str):
            return native
        if kind != "message" and call_id_of(native) is None:
            return None if kind.endswith("_call") else native
        return {key: value for key, value in native.items() if key != "id"}

    def user_message(self, text: str) -> Native:
        return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}

    def system_message(self, text: str) -> Native | None:
        return {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": text}]}

    assemble = staticmethod(assemble)

    def tool_definitions(self, tools: Sequence[ToolSchema]) -> list[dict[str, Any]]:
        return [
            {"type": "function", "name": each.name, "description": each.description, "parameters": each.arguments}
            for each in tools
        ]


def _matches_message(native: Native) -> float:
    if role_of(native) not in _ROLES or "tool_calls" in native:
        return 0.0
    content = native.get("content")
    typed = 0.9 if "type" in native else 0.0
    if isinstance(content, str):
        return typed or 0.4
    if not isinstance(content, list):
        return 0.0
    scores = [_matches_part(part) for part in content]
    return 0.0 if 0.0 in scores else max([*scores, typed, 0.2])


def _matches_part(part: object) -> float:
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(kind, str) or kind in _FOREIGN_PARTS:
        return 0.0
    return 1.0 if kind.startswith(("input_", "output_")) else 0.2


def _no_item(native: Mapping[str, Any]) -> str:
    if isinstance(native.get("output"), list):
        return "this is a whole API response; record the items of its `output` one by one."
    return "it has neither 'type' nor 'role'; expected an item of the Responses API."


def _read_parts(content: object, where: str) -> list[Piece]:
    if isinstance(content, str):
        return [piece("text", content)] if content else []
    if not isinstance(content, list):
        raise BadMessageError(f"{where} is {kind_of(content)}; expected a string or a list of parts.")
    return [_read_part(part, f"{where}[{place}]") for place, part in enumerate(content)]


def _read_part(value: object, where: str) -> Piece:
    part = need_object(value, where)
    kind = need_text(part, "type", where)
    if kind in _FOREIGN_PARTS:
        raise BadMessageError(
            f"{where} is a '{kind}' of another format; expected Responses parts. Record it in its own format."
        )
    if kind in _TEXT_PARTS:
        return piece("text", need_text(part, "text", where))
    if kind == "refusal":
        return piece("text", need_text(part, "refusal", where))
    if kind in ("input_image", "computer_screenshot"):
        return image_piece(part.get("image_url"))
    if kind == "input_file":
        name = part.get("filename")
        return piece("document", name if isinstance(name, str) else "")
    if kind == "input_audio":
        return opaque_media(part)
    return opaque(part)


def _reasoning_text(native: Mapping[str, Any]) -> str:
    texts = []
    for key in ("summary", "content"):
        parts = native.get(key)
        if parts is not None and not isinstance(parts, list):
            raise BadMessageError(f"{key} is {kind_of(parts)}; expected a list.")
        texts += [found.text for found in _read_parts(parts or [], key)]
    return "\n".join(texts)


def _read_item(native: Mapping[str, Any], kind: str) -> Iterator[Piece]:
    answered = answered_id_of(native)
    if kind.endswith("_call") or kind == APPROVAL_REQUEST:
        yield _read_call(native, kind)
    elif kind.endswith("_call_output"):
        if answered is None:
            raise BadMessageError("call_id is missing; expected the id of the call that this answers.")
        yield from _read_output(native, kind, answered)
    else:
        yield opaque(native, answered)


def _read_call(native: Mapping[str, Any], kind: str) -> Piece:
    call_id = call_id_of(native)
    if kind in ("function_call", "custom_tool_call"):
        need_text(native, "call_id", "the item", empty=False)
        need_text(native, "name", "the item")
    if kind == "image_generation_call":
        return opaque_media(native)
    name, namespace = native.get("name"), native.get("namespace")
    tool = name if isinstance(name, str) and name else kind.removesuffix("_call")
    if isinstance(namespace, str) and isinstance(name, str):
        tool = namespace + name
    for key in ("arguments", "input", "action", "operation", "actions"):
        if native.get(key) is not None and (call_id or key == "action"):
            return call_piece(call_id, tool, native[key])
    rest = {key: value for key, value in native.items() if key not in ("id", "type", "status", "call_id")}
    return call_piece(call_id, tool, rest)


def _read_output(native: Mapping[str, Any], kind: str, call_id: str) -> list[Piece]:
    output = native.get("output")
    if kind == "computer_call_output":
        return [image_piece(output.get("image_url") if isinstance(output, dict) else None, call_id=call_id)]
    if kind == "shell_call_output":
        parts = _shell_parts(output)
    elif output is None or isinstance(output, str | list):
        parts = _read_parts(output or "", "output")
    elif isinstance(output, dict):
        parts = [piece("text", as_json(output))]
    else:
        raise BadMessageError(f"output is {kind_of(output)}; expected a string or a list of parts.")
    return result_pieces(call_id, parts, ("output",), is_error=native.get("status") == "failed")


def _shell_parts(output: object) -> list[Piece]:
    if not isinstance(output, list):
        raise BadMessageError(f"output is {kind_of(output)}; expected a list of stdout and stderr.")
    chunks = [need_object(chunk, f"output[{place}]") for place, chunk in enumerate(output)]
    texts = [chunk.get(key) for chunk in chunks for key in ("stdout", "stderr")]
    return [piece("text", text) for text in texts if isinstance(text, str) and text]
