"""The rules of Anthropic Messages.

From the Messages API reference, the guides on tool use, extended thinking, prompt caching and compaction, and
the API's own error texts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from contextstash_storage.records import Native

_ASSISTANT_ONLY = ("tool_use", "server_tool_use", "mcp_tool_use", "thinking", "redacted_thinking")
_MAX_BREAKPOINTS = 4
"""Cache breakpoints in a request: https://docs.claude.com/en/docs/build-with-claude/prompt-caching"""


def anthropic_violations(natives: Sequence[Native]) -> list[str]:
    """See `violations`."""
    malformed = [problem for place, native in enumerate(natives) for problem in _structure(place, native)]
    if malformed:  # the rules below read fields that a malformed message lacks
        return malformed
    return [
        *_alternation(natives),
        *(problem for place, native in enumerate(natives) for problem in _blocks(place, native)),
        *_tool_results(natives),
        *_server_results(natives),
        *_breakpoints(natives),
    ]


def _structure(place: int, native: Native) -> Iterator[str]:
    if native.get("role") not in ("user", "assistant", "system"):
        yield f"Message {place} has the role {native.get('role')!r}; expected user, assistant or system."
    known = ("role", "content", *(("clear_at", "output_config") if native.get("role") == "system" else ()))
    unknown = [key for key in native if key not in known]
    if unknown:
        yield f"Message {place} has the key '{unknown[0]}', which a request may not have."
    content = native.get("content")
    if isinstance(content, str):
        if not content.strip():
            yield f"Message {place} has an empty text."
    elif not isinstance(content, list) or not content:
        yield f"Message {place} has no content."
    elif not all(isinstance(block, dict) and isinstance(block.get("type"), str) for block in content):
        yield f"Message {place} contains a block without a type."
    else:
        yield from _ids(place, content)


def _ids(place: int, content: Sequence[dict[str, Any]]) -> Iterator[str]:
    for index, block in enumerate(content):
        key = {"tool_use": "id", "tool_result": "tool_use_id"}.get(block["type"])
        if key and not isinstance(block.get(key), str):
            yield f"Message {place}, block {index}: '{block['type']}' has no {key}."


def _alternation(natives: Sequence[Native]) -> Iterator[str]:
    if natives and natives[0]["role"] != "user" and not _is_compacted(natives[0]):
        yield "Message 0 has the role assistant; the first message must have the role user."
    for place in range(1, len(natives)):
        if natives[place]["role"] == natives[place - 1]["role"]:
            yield f"Messages {place - 1} and {place} have the same role; merge them into one message."
        if (natives[place - 1]["role"], natives[place]["role"]) in (("assistant", "system"), ("system", "user")):
            yield f"Message {place}: a system message follows one of the user, and is followed by the assistant."


def _is_compacted(native: Native) -> bool:
    """Whether the message begins with the provider's own summary of everything before it (server-side compaction)."""
    return any(block["type"] == "compaction" for block in _content(native)[:1])


def _content(native: Native) -> list[dict[str, Any]]:
    content = native["content"]
    return content if isinstance(content, list) else []


def _blocks(place: int, native: Native) -> Iterator[str]:
    content = _content(native)
    role = native["role"]
    for index, block in enumerate(content):
        where = f"Message {place}, block {index}"
        kind = block["type"]
        if role != "assistant" and (kind in _ASSISTANT_ONLY or kind.endswith("_tool_result")):
            yield f"{where}: '{kind}' is not allowed in a user message."
        if role == "assistant" and kind == "tool_result":
            yield f"{where}: 'tool_result' is not allowed in an assistant message."
        yield from _texts(where, block)
        yield from _thinking(where, block)
    if content and content[-1]["type"] in ("thinking", "redacted_thinking"):
        yield f"Message {place} ends with thinking; the block that it led to is missing."


def _texts(where: str, block: dict[str, Any]) -> Iterator[str]:
    inner = block.get("content") if block["type"] == "tool_result" else None
    parts = [block, *(part for part in inner if isinstance(part, dict))] if isinstance(inner, list) else [block]
    if any(part.get("type") == "text" and not str(part.get("text", "")).strip() for part in parts):
        yield f"{where} is an empty text."
    if block["type"] == "compaction" and block.get("content") == "":
        yield f"{where}: the content of a compaction may be null but not empty."


def _thinking(where: str, block: dict[str, Any]) -> Iterator[str]:
    if block["type"] in ("thinking", "redacted_thinking") and "cache_control" in block:
        yield f"{where}: thinking cannot be a cache breakpoint."
    if block["type"] == "thinking" and not block.get("signature"):
        yield f"{where}: thinking has no signature."
    if block["type"] == "redacted_thinking" and not block.get("data"):
        yield f"{where}: redacted thinking has no data."


def _tool_results(natives: Sequence[Native]) -> Iterator[str]:
    """Each tool use has exactly one result at the start of the next user message, and each result has a tool use."""
    for place, native in enumerate(natives):
        content = _content(native)
        if native["role"] == "assistant":
            following = _content(natives[place + 1]) if place + 1 < len(natives) else []
            results = Counter(block.get("tool_use_id") for block in following if block["type"] == "tool_result")
            yield from _calls(place, content, results)
        else:
            previous = _content(natives[place - 1]) if place else []
            called = {block.get("id") for block in previous if block["type"] == "tool_use"}
            yield from _results(place, content, called)


def _calls(place: int, content: Sequence[dict[str, Any]], results: Counter[Any]) -> Iterator[str]:
    uses = Counter(block.get("id") for block in content if block["type"] == "tool_use")
    for call_id, times in uses.items():
        if times > 1:
            yield f"Message {place} contains the tool use {call_id} twice."
        if results[call_id] != 1:
            count = results[call_id]
            yield f"Message {place}: the tool use {call_id} has {count} results in the next message, not one."


def _results(place: int, content: Sequence[dict[str, Any]], called: set[Any]) -> Iterator[str]:
    others = 0
    for index, block in enumerate(content):
        if block["type"] != "tool_result":
            others += 1
            continue
        if others:
            yield f"Message {place}, block {index}: tool results must be the first blocks of their message."
        if block.get("tool_use_id") not in called:
            yield (
                f"Message {place}, block {index}: the result of {block.get('tool_use_id')} has no tool use"
                " in the message before."
            )


def _server_results(natives: Sequence[Native]) -> Iterator[str]:
    """A use of a provider's own tool has its result in the same or a later reply. It may be open in the last message,
    and while a client's tool that it called is being answered."""
    open_uses: dict[str, list[int]] = {}
    callers = set()
    for place, native in enumerate(natives):
        for block in _content(native):
            caller = block.get("caller")
            if isinstance(caller, dict):
                callers |= {str(caller.get("tool_id")), str(caller.get("toolId"))}
            if block["type"] in ("server_tool_use", "mcp_tool_use"):
                open_uses.setdefault(str(block.get("id")), []).append(place)
            elif block["type"].endswith("_tool_result"):
                waiting = open_uses.get(str(block.get("tool_use_id")))
                if waiting:
                    waiting.pop()
                else:
                    yield f"Message {place}: '{block['type']}' has no call before it."
    for call_id, places in open_uses.items():
        for place in places:
            if place != len(natives) - 1 and call_id not in callers:
                yield f"Message {place}: the provider's tool use {call_id} has no result."


def _breakpoints(natives: Sequence[Native]) -> Iterator[str]:
    found = sum(
        _is_breakpoint(part) for native in natives for block in _content(native) for part in _with_nested(block)
    )
    if found > _MAX_BREAKPOINTS:
        yield f"The list has {found} cache breakpoints; at most {_MAX_BREAKPOINTS} are allowed."


def _is_breakpoint(block: object) -> bool:
    return isinstance(block, dict) and block.get("cache_control") is not None


def _with_nested(block: dict[str, Any]) -> list[object]:
    inner = block.get("content") if block["type"] == "tool_result" else None
    return [block, *inner] if isinstance(inner, list) else [block]
