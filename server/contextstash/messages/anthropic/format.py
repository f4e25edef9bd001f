"""Anthropic Messages: content blocks, tool results inside user messages, signed thinking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from contextstash.messages.anthropic.assembly import THINKING, assemble
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
    piece,
    reading,
    result_pieces,
    role_of,
)
from contextstash.messages.breakpoints import (
    BREAKPOINT_KEY,
    content_of,
    count_breakpoints,
    keep_breakpoints,
    sent_breakpoints,
)
from contextstash_storage.errors import BadMessageError
from contextstash_storage.records import Native, Role

OWN_BLOCKS = frozenset(
    {
        "tool_use",
        "tool_result",
        "thinking",
        "redacted_thinking",
        "server_tool_use",
        "mcp_tool_use",
        "mcp_tool_result",
        "document",
        "image",
        "search_result",
        "compaction",
        "container_upload",
    }
)
"""Block types that only this format has."""

_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}


class AnthropicFormat(Format):
    """Anthropic Messages, both in requests and as recorded replies.

    A tool result inside a user message is one block of type `tool_result`; its text is the text of all its parts.
    Images and documents nested in it follow as separate blocks with the result's call id. Replacing the result
    replaces its whole content, including the nested blocks. Results that the provider writes into a reply (web search,
    code execution, MCP connectors) are opaque: they must be sent back verbatim, so nothing may replace them; their
    `call_id` pairs them with their call.
    """

    name = "anthropic"

    def matches(self, native: Native) -> float:
        if not isinstance(native, dict) or role_of(native) not in _ROLES:
            return 0.0
        if any(native.get(key) is not None for key in ("tool_calls", "function_call", "tool_call_id")):
            return 0.0
        if "stop_reason" in native or "stop_sequence" in native:
            return 1.0
        content = native.get("content")
        if isinstance(content, str):
            return 0.1 if native["role"] == "system" else 0.5
        if not isinstance(content, list):
            return 0.0
        scores = [_matches_block(block) for block in content]
        return 0.0 if 0.0 in scores else max(scores, default=0.3)

    def read(self, native: Native) -> Reading:
        need_object(native, "the message")
        role = need_role(native, _ROLES, "'user' or 'assistant'")
        pieces = [found for block in _content(native) for found in _read_block(block)]
        return reading(native, role, pieces, group=native.get("id") if role == "assistant" else None)

    def in_place_of(self, native: Native, text: str, old: Any) -> Any:
        return [{"type": "text", "text": text}] if isinstance(old, list) else text

    def without_thinking(self, native: Native) -> Native | None:
        content = content_of(native)
        rest = [block for block in content if block["type"] not in THINKING]
        if len(rest) == len(content):
            return native
        return {**native, "content": rest} if rest else None

    def user_message(self, text: str) -> Native:
        return {"role": "user", "content": text}

    def limit_breakpoints(self, natives: Sequence[Native], most: int, changed: int | None) -> Sequence[Native]:
        counts = [count_breakpoints(content_of(native)) for native in natives]
        if sum(counts) <= most:
            return natives
        places = [place for place, count in enumerate(counts) for _ in range(count)]
        sent = set(sent_breakpoints(places, most, changed))
        firsts = accumulate(counts, initial=0)
        return [
            keep_breakpoints(native, {number - first for number in sent}) if count else native
            for native, count, first in zip(natives, counts, firsts, strict=False)
        ]

    assemble = staticmethod(assemble)

    def tool_definitions(self, tools: Sequence[ToolSchema]) -> list[dict[str, Any]]:
        return [{"name": each.name, "description": each.description, "input_schema": each.arguments} for each in tools]


def _matches_block(block: object) -> float:
    if not isinstance(block, dict) or not isinstance(block.get("type"), str):
        return 0.0
    kind = block["type"]
    if kind in ("image_url", "input_audio", "refusal", "file") or kind.startswith(("input_", "output_")):
        return 0.0
    if kind in OWN_BLOCKS or kind.endswith("_tool_result"):
        return 1.0
    if kind == "text":
        return 0.6 if "cache_control" in block or "citations" in block else 0.5
    return 0.3


def _content(native: Native) -> list[tuple[int, object]]:
    content = native.get("content")
    if isinstance(content, str):
        return [(0, {"type": "text", "text": content})] if content else []
    if not isinstance(content, list):
        raise BadMessageError(f"content is {kind_of(content)}; expected a string or a list of blocks.")
    return list(enumerate(content))


def _read_block(entry: tuple[int, object]) -> list[Piece]:
    place, value = entry
    where = f"content[{place}]"
    block = need_object(value, where)
    pieces = _pieces(block, place, where)
    nested = content_of(block) if block["type"] == "tool_result" else ()
    if not any(part.get(BREAKPOINT_KEY) is not None for part in (block, *nested)):
        return pieces
    marked = pieces[0].block.model_copy(update={"breakpoint": True})
    return [pieces[0]._replace(block=marked), *pieces[1:]]


def _pieces(block: Mapping[str, Any], place: int, where: str) -> list[Piece]:
    kind = need_text(block, "type", where)
    if kind == "tool_use":
        call_id = need_text(block, "id", where, empty=False)
        return [call_piece(call_id, need_text(block, "name", where), block.get("input", {}))]
    if kind == "tool_result":
        call_id = need_text(block, "tool_use_id", where, empty=False)
        parts = _result_parts(block.get("content"), where)
        is_error = block.get("is_error") is True
        return result_pieces(call_id, parts, ("content", place, "content"), is_error=is_error)
    if kind in ("function_call", "function_call_output", "image_url"):
        raise BadMessageError(f"{where} is an OpenAI '{kind}'; expected Anthropic blocks. Record it in its own format.")
    return [_read_plain(block, kind, where)]


def _read_plain(block: Mapping[str, Any], kind: str, where: str) -> Piece:
    if kind == "text":
        return piece("text", need_text(block, "text", where))
    if kind == "thinking":
        return piece("thinking", need_text(block, "thinking", where))
    if kind == "redacted_thinking":
        return piece("thinking")
    if kind == "image":
        source = block.get("source")
        return image_piece(source.get("data") if isinstance(source, dict) else None)
    if kind == "document":
        return piece("document", _document_text(block))
    if kind in ("server_tool_use", "mcp_tool_use"):
        name = block.get("name")
        return call_piece(_id(block.get("id")), name if isinstance(name, str) else kind, block.get("input", {}))
    if kind.endswith("_tool_result"):
        return opaque(block, _id(block.get("tool_use_id")))
    if kind == "compaction" and isinstance(block.get("content"), str):
        return piece("opaque", block["content"])
    return opaque(block)


def _result_parts(content: object, where: str) -> list[Piece]:
    if content is None or isinstance(content, str):
        return [piece("text", content or "")]
    if not isinstance(content, list):
        raise BadMessageError(f"{where}.content is {kind_of(content)}; expected a string or a list.")
    parts = []
    for place, value in enumerate(content):
        inner = f"{where}.content[{place}]"
        block = need_object(value, inner)
        parts.append(_read_plain(block, need_text(block, "type", inner), inner))
    return parts


def _document_text(block: Mapping[str, Any]) -> str:
    """The title, the context and, if the document is plain text, its text."""
    source = block.get("source")
    texts = [block.get("title"), block.get("context")]
    if isinstance(source, dict) and source.get("type") == "text":
        texts.append(source.get("data"))
    elif isinstance(source, dict) and source.get("type") == "content":
        inner = source.get("content")
        texts.append(inner if isinstance(inner, str) else as_json(inner))
    return "\n".join(text for text in texts if isinstance(text, str) and text)


def _id(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
