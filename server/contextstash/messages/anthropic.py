"""Anthropic Messages: content blocks, tool results inside user messages, signed thinking."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from contextstash.messages import base
from contextstash.messages.base import Call, Format, Part, PartKinds, Path, Piece
from contextstash.messages.rules import MISSING_RESULT
from contextstash_storage.errors import BadMessageError
from contextstash_storage.records import Native, Role

SERVER_CALLS = ("server_tool_use", "mcp_tool_use")
THINKING = ("thinking", "redacted_thinking")
ASSISTANT_BLOCKS = ("tool_use", *SERVER_CALLS, *THINKING)
OTHER_BLOCKS = ("tool_result", "document", "image", "search_result", "compaction", "container_upload")
"""With those of the assistant, and results of the provider's tools, the block types that only this format has."""

_FOREIGN_BLOCKS = ("function_call", "function_call_output", "image_url", "refusal", "file")

BREAKPOINT_KEY = "cache_control"

SENT_BREAKPOINTS = 2
"""Cache breakpoints that are sent, the newest ones. The API accepts four in a request; two are left to tools and system
prompt, as agents set them. To find a cached prefix it looks back from each, at most 20 blocks, for the end of an
earlier request: https://docs.claude.com/en/docs/build-with-claude/prompt-caching"""

SYSTEM_KEYS = ("clear_at", "output_config")
"""What a system message may have beside its content: until when it is shown, and what holds for its turn."""

_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}

BlockJson = Mapping[str, Any]


class AnthropicFormat(Format):
    """Anthropic Messages, both in requests and as recorded replies.

    A tool result inside a user message is one block of type `tool_result`; its text is the text of all its parts.
    Images and documents nested in it follow as separate blocks with the result's call id. Replacing the result
    replaces its whole content, including the nested blocks. Results that the provider writes into a reply (web search,
    code execution, MCP connectors) are opaque: they must be sent back verbatim, so nothing may replace them; their
    `call_id` pairs them with their call.
    """

    name = "anthropic"
    own_keys = frozenset({"stop_reason", "stop_sequence"})
    schema_key = "input_schema"

    def pieces(self, native: Mapping[str, Any]) -> tuple[Role, list[Piece]]:
        role = base.need_role(native, _ROLES, "'user' or 'assistant'")
        if any(native.get(key) is not None for key in ("tool_calls", "function_call", "tool_call_id")):
            raise BadMessageError("it has tool calls of OpenAI Chat. Record it in its own format.")
        pieces: list[Piece] = []
        for place, (block, kind, where) in enumerate(_KINDS.parts(native.get("content"))):
            if kind == "tool_result":
                pieces += _read_result(block, where, ("content", place, "content"))
            else:
                pieces.append(_read_block(block, kind, where))
        return role, pieces

    def is_own_part(self, part: BlockJson) -> bool:
        kind = part["type"]
        is_own = kind in (*ASSISTANT_BLOCKS, *OTHER_BLOCKS) or _is_server_result(part)
        return is_own or (kind == "text" and (BREAKPOINT_KEY in part or "citations" in part))

    def without_thinking(self, native: Native) -> Native | None:
        content = content_of(native)
        rest = [block for block in content if block["type"] not in THINKING]
        if len(rest) == len(content):
            return native
        return {**native, "content": rest} if rest else None

    def limit_breakpoints(self, natives: Sequence[Native]) -> Sequence[Native]:
        """A list longer than a session's first requests has far more: agents set one at the end of each request."""
        left, most = list(natives), SENT_BREAKPOINTS
        for place in range(len(left) - 1, -1, -1):
            if count := _breakpoints(content_of(left[place])):
                most -= count
                left[place] = left[place] if most >= 0 else without_breakpoints(left[place])
        return left

    def sent_parts(self, native: Native) -> list[Part]:
        role, content = native["role"], native["content"]
        by_model = role == "assistant"
        reply = base.name_of(native.get("id")) if by_model else None
        parts: list[Part] = []
        called: set[str] = set()
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            if (sent := _sent(block, by_model)) is None:
                continue
            kind = sent["type"]
            answers = (sent["tool_use_id"],) if kind == "tool_result" else ()
            is_call = kind == "tool_use"
            if is_call and sent["id"] in called:  # the API could not distinguish the results of two calls of one id
                sent, is_call = _as_text(sent), False
            calls = (Call((sent["id"],), sent),) if is_call else ()
            called.update(calls[0].keys if calls else ())
            about = kind in THINKING, kind == "compaction", role == "system"
            part = Part(sent, by_model, native, reply, calls, answers, *about)
            if kind in SERVER_CALLS:
                part.asks = str(sent.get("id"))
            elif by_model and _is_server_result(sent):
                part.gets = str(sent.get("tool_use_id"))
            if isinstance(caller := sent.get("caller"), dict):
                part.caller = base.name_of(caller.get("tool_id", caller.get("toolId")))
            parts.append(part)
        return parts

    def missing(self, call: Call) -> Native:
        return {"type": "tool_result", "tool_use_id": call.keys[0], "content": MISSING_RESULT, "is_error": True}

    def orphan(self, part: Part) -> list[Native]:
        return _KINDS.left_of(part.native.get("content"))

    def joined(self, messages: Sequence[Sequence[Part]]) -> list[Native]:
        return [_joined(parts) for parts in messages]


def _read_result(block: BlockJson, where: str, path: Path) -> list[Piece]:
    call_id = base.need_text(block, "tool_use_id", where, empty=False)
    content = block.get("content")
    nested = _KINDS.parts("" if content is None else content, f"{where}.content")
    parts = [_read_block(part, kind, at) for part, kind, at in nested]
    return base.result_pieces(call_id, parts, path, is_error=block.get("is_error") is True)


def _read_block(block: BlockJson, kind: str, where: str) -> Piece:
    if kind == "tool_use":
        call_id = base.need_text(block, "id", where, empty=False)
        return base.call_piece(call_id, base.need_text(block, "name", where), block.get("input", {}))
    if kind == "thinking":
        return base.piece("thinking", base.need_text(block, kind, where))
    if kind == "redacted_thinking":
        return base.piece("thinking")
    if kind in SERVER_CALLS:
        return base.call_piece(
            base.name_of(block.get("id")), base.name_of(block.get("name")) or kind, block.get("input", {})
        )
    if kind.endswith("_tool_result"):
        return base.opaque(block, base.name_of(block.get("tool_use_id")))
    if kind == "compaction" and isinstance(content := block.get("content"), str):
        return base.piece("opaque", content)
    return _KINDS.read_part(block, kind, where)


def _document_text(block: BlockJson) -> str:
    """The title and, if the document is plain text, its text."""
    source = block.get("source")
    plain = source.get("data") if isinstance(source, dict) and source.get("type") == "text" else None
    texts = (block.get("title"), plain)
    return "\n".join(text for text in texts if isinstance(text, str) and text)


_KINDS = PartKinds(
    {"text": "text"},
    images=["image"],
    documents={"document": _document_text},
    foreign=lambda kind: kind in _FOREIGN_BLOCKS or kind.startswith(("input_", "output_")),
)


def _sent(block: Native, by_model: bool) -> Native | None:
    """The block, or its JSON as text if a message of that role may not contain it; None if it lacks the content that
    the API demands of its type. Thinking goes without a cache breakpoint, which the API refuses on it."""
    kind = block["type"]
    if kind == "text":
        return block if block["text"].strip() else None
    if kind == "tool_use" and by_model:
        return block
    if kind == "tool_result" and not by_model:
        content = content_of(block)
        kept = [part for part in content if part["type"] != "text" or part["text"].strip()]
        return block if len(kept) == len(content) else {**block, "content": kept}
    if kind == "compaction" and block.get("content") == "":
        return None
    if kind in THINKING and not block.get("signature" if kind == "thinking" else "data"):
        return None
    if kind in THINKING and BREAKPOINT_KEY in block and by_model:
        return {key: value for key, value in block.items() if key != BREAKPOINT_KEY}
    of_assistant = kind in ASSISTANT_BLOCKS or _is_server_result(block)
    return _as_text(block) if kind == "tool_result" or (not by_model and of_assistant) else block


def _as_text(block: Native) -> Native:
    return {"type": "text", "text": base.as_json(block)}


def _joined(parts: Sequence[Part]) -> Native:
    """The parts in one message, in the shape of the message that the first of them was in."""
    source = next((part.source for part in parts if part.source), {})
    is_text = len(parts) == 1 and isinstance(source.get("content"), str)
    content: Any = parts[0].native["text"] if is_text else [part.native for part in parts]
    role = "assistant" if parts[0].by_model else "system" if parts[0].instructs else "user"
    kept = {key: source[key] for key in SYSTEM_KEYS if key in source} if role == "system" else {}
    return base.in_shape_of(source, {"role": role, "content": content, **kept})


def _is_server_result(block: BlockJson) -> bool:
    return str(block["type"]).endswith("_tool_result")


def _breakpoints(blocks: Iterable[object]) -> int:
    """How many cache breakpoints are in these blocks, including nested ones."""
    count = 0
    for block in blocks:
        if isinstance(block, dict):
            count += block.get(BREAKPOINT_KEY) is not None
            if block.get("type") == "tool_result":
                count += _breakpoints(content_of(block))
    return count


def without_breakpoints(value: Any) -> Any:
    """A message, a block or a list of blocks without the breakpoints in it."""
    if isinstance(value, list):
        return [without_breakpoints(each) for each in value]
    if not isinstance(value, dict):
        return value
    left = {key: each for key, each in value.items() if key != BREAKPOINT_KEY}
    return {**left, "content": without_breakpoints(value["content"])} if content_of(value) else left


def content_of(native: Mapping[str, Any]) -> list[Any]:
    """The blocks of a message or tool result; empty if its content is a string."""
    content = native.get("content")
    return content if isinstance(content, list) else []
