"""Repairs and assembles a list of Anthropic messages so that the Messages API accepts it.

Each turn is one assistant message, then one user message with the results of its calls first, then everything else.
Content that is not valid on its own is left out: empty texts, thinking without a signature or at the end of a message,
server tool calls and results without their counterpart. A result without its call becomes text. Thinking blocks and
signatures are never changed, except that a cache breakpoint on them, which the API refuses, is removed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from contextstash.formats.block_reader import ASSISTANT_FIRST, MISSING_RESULT, as_json, orphan_text
from contextstash.formats.breakpoints import BREAKPOINT_KEY, content_of
from contextstash_storage.records import Native

Place = tuple[int, int]
"""The index of a message and the index of a block in it."""


def results_after_calls(natives: Sequence[Native]) -> Sequence[Native]:
    """The messages, with each early result moved into a user message directly after its call.

    A result is early if no call before it has its id, but a call after it in the same user turn does, and nothing else
    answers that call.
    """
    moves = _early_results(natives)
    if not moves:
        return natives
    moved = set(moves.values())
    ordered: list[Native] = []
    for at, native in enumerate(natives):
        blocks = _blocks(native)
        left = [block for index, block in enumerate(blocks) if (at, index) not in moved]
        ordered.append(native if len(left) == len(blocks) else {**native, "content": left})
        for index in range(len(blocks)):
            if (at, index) in moves:
                source, block = moves[at, index]
                ordered.append({"role": "user", "content": [_blocks(natives[source])[block]]})
    return ordered


def _early_results(natives: Sequence[Native]) -> dict[Place, Place]:
    """Maps the place of a call to the place of its early result."""
    open_calls: dict[str, list[tuple[Place, int]]] = {}
    orphans: list[tuple[str, Place, int]] = []
    turn = 0
    for at, native in enumerate(natives):
        turn += _speaks(native)
        for index, block in enumerate(_blocks(native)):
            if block["type"] == "tool_use":
                open_calls.setdefault(block["id"], []).append(((at, index), turn))
            elif block["type"] == "tool_result":
                call_id = block["tool_use_id"]
                if open_calls.get(call_id):
                    open_calls[call_id].pop()
                else:
                    orphans.append((call_id, (at, index), turn))
    moves: dict[Place, Place] = {}
    for call_id, place, spoken in orphans:
        calls = open_calls.get(call_id, [])
        next_call = bisect_right(calls, (place, spoken))
        if next_call < len(calls) and calls[next_call][1] == spoken:
            moves[calls.pop(next_call)[0]] = place
    return moves


def _blocks(native: Native) -> list[dict[str, Any]]:
    content = native["content"]
    return content if isinstance(content, list) else []


def _speaks(native: Native) -> bool:
    """Whether the message has content of the user, not only of tools."""
    if native["role"] != "user":
        return False
    blocks = _blocks(native)
    return not blocks or any(block["type"] != "tool_result" for block in blocks)


SENT_KEYS = ("role", "content")
"""The keys of a message that the API accepts; it refuses any other (`usage`, `id`, `stop_reason`, …)."""

SERVER_CALLS = ("server_tool_use", "mcp_tool_use")
THINKING = ("thinking", "redacted_thinking")
ASSISTANT_BLOCKS = ("tool_use", *SERVER_CALLS, *THINKING)

BlockJson = dict[str, Any]


@dataclass
class _Side:
    """One message being built. `order` is the key order of the first message in it, so that a valid message keeps its
    exact bytes, and the provider's cache still matches."""

    role: str
    blocks: list[BlockJson] = field(default_factory=list)
    order: tuple[str, ...] = SENT_KEYS
    from_string: bool = False

    def add(self, blocks: Iterable[BlockJson], native: Native) -> None:
        first = not self.blocks
        self.blocks.extend(blocks)
        if first and self.blocks:
            self.order = tuple(key for key in native if key in SENT_KEYS)
            self.from_string = isinstance(native.get("content"), str)
        else:
            self.from_string = False

    def native(self) -> Native:
        content: object = self.blocks
        if self.from_string and len(self.blocks) == 1:
            content = self.blocks[0]["text"]
        values = {"role": self.role, "content": content}
        return {key: values[key] for key in self.order}


@dataclass
class _Turn:
    """An assistant message, the results of its calls, and the user's content after them."""

    assistant: _Side = field(default_factory=lambda: _Side("assistant"))
    reply: str | None = None
    open_calls: list[str] = field(default_factory=list)
    call_ids: set[str] = field(default_factory=set)
    results: list[BlockJson] = field(default_factory=list)
    user: _Side = field(default_factory=lambda: _Side("user"))

    def ends_with_reply(self) -> bool:
        """Whether no user message follows the assistant's."""
        return not (self.user.blocks or self.results or self.open_calls)

    def natives(self) -> list[Native]:
        missing = [_missing(call_id) for call_id in self.open_calls]
        if self.results or missing:
            self.user.from_string = False
            self.user.blocks = [*self.results, *missing, *self.user.blocks]
        sides = (self.assistant, self.user)
        return [side.native() for side in sides if side.blocks]


def _missing(call_id: str) -> BlockJson:
    return {"type": "tool_result", "tool_use_id": call_id, "content": MISSING_RESULT, "is_error": True}


class _Builder:
    """Distributes the blocks of messages, added in order, among turns."""

    def __init__(self) -> None:
        self.turns = [_Turn()]
        self._open: dict[str, list[_Turn]] = {}

    def add(self, native: Native, blocks: list[BlockJson]) -> None:
        if native["role"] == "assistant":
            self._add_reply(native, blocks)
        else:
            self._add_user(native, blocks)

    def _add_reply(self, native: Native, blocks: list[BlockJson]) -> None:
        blocks = _each_call_once(blocks)
        if not blocks:
            return
        calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
        reply = native.get("id")
        turn = self.turns[-1]
        same_reply = reply is not None and reply == turn.reply
        starts_turn = (
            turn.user.blocks or (turn.results and not same_reply) or any(call_id in turn.call_ids for call_id in calls)
        )
        if starts_turn:
            turn = _Turn()
            self.turns.append(turn)
        turn.reply = reply if isinstance(reply, str) else None
        turn.assistant.add(blocks, native)
        for call_id in calls:
            turn.open_calls.append(call_id)
            turn.call_ids.add(call_id)
            self._open.setdefault(call_id, []).append(turn)

    def _add_user(self, native: Native, blocks: list[BlockJson]) -> None:
        user = self.turns[-1].user
        own: list[BlockJson] = []
        for block in blocks:
            if block["type"] != "tool_result":
                own.append(block)
            elif not self._answer(block, native):
                own.extend(_orphan(block))
        if own:
            user.add(own, native)

    def _answer(self, result: BlockJson, native: Native) -> bool:
        waiting = self._open.get(result["tool_use_id"])
        if not waiting:
            return False
        turn = waiting.pop()
        turn.open_calls.remove(result["tool_use_id"])
        turn.results.append(result)
        if len(turn.results) == 1 and not turn.user.blocks:
            turn.user.order = tuple(key for key in native if key in SENT_KEYS)
        return True


def assemble(natives: Sequence[Native]) -> list[Native]:
    """The messages of a valid request; equal to `natives` if these are valid already.

    System messages are left out: the API takes `system` in a field of its own.
    """
    spoken = [native for native in natives if native.get("role") in ("user", "assistant")]
    builder = _Builder()
    for native in results_after_calls(spoken):
        builder.add(native, _sendable_blocks(native))
    _drop_unpaired_server_blocks(builder.turns)
    messages = [message for turn in _whole(builder.turns) for message in turn.natives()]
    if messages and messages[0]["role"] == "assistant" and not _is_compacted(messages[0]):
        messages.insert(0, {"role": "user", "content": ASSISTANT_FIRST})
    return messages


def _is_compacted(message: Native) -> bool:
    """Whether the message begins with the provider's own summary of everything before it. Such a reply may be the first
    message of a list."""
    return any(block["type"] == "compaction" for block in content_of(message)[:1])


def _sendable_blocks(native: Native) -> list[BlockJson]:
    content = native["content"]
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content.strip() else []
    return [_sendable(block, native["role"]) for block in content if _is_sendable(block)]


def _is_sendable(block: BlockJson) -> bool:
    match block["type"]:
        case "text":
            return bool(block["text"].strip())
        case "thinking":
            return bool(block.get("signature"))
        case "redacted_thinking":
            return bool(block.get("data"))
        case "compaction":
            return block.get("content") != ""
    return True


def _sendable(block: BlockJson, role: str) -> BlockJson:
    """The block, or its JSON as text if a message of that role may not contain it."""
    if block["type"] == "tool_result" and role == "user":
        return _without_empty_texts(block)
    if block["type"] in THINKING and BREAKPOINT_KEY in block and role == "assistant":
        return {key: value for key, value in block.items() if key != BREAKPOINT_KEY}
    of_assistant = block["type"] in ASSISTANT_BLOCKS or _is_server_result(block)
    if block["type"] == "tool_result" or (role == "user" and of_assistant):
        return {"type": "text", "text": as_json(block)}
    return block


def _without_empty_texts(result: BlockJson) -> BlockJson:
    content = result.get("content")
    if not isinstance(content, list):
        return result
    kept = [part for part in content if part["type"] != "text" or part["text"].strip()]
    return result if len(kept) == len(content) else {**result, "content": kept}


def _drop_unpaired_server_blocks(turns: list[_Turn]) -> None:
    """Remove calls of the provider's own tools that have no result, and results without a call. A call may be open in
    the last message (the provider paused there), or while it waits for a client's tool that it called."""
    replies = [turn.assistant.blocks for turn in turns]
    pending: dict[str, list[BlockJson]] = {}
    dropped: set[int] = set()
    for block in (block for blocks in replies for block in blocks):
        if block["type"] in SERVER_CALLS:
            pending.setdefault(str(block.get("id")), []).append(block)
        elif _is_server_result(block):
            waiting = pending.get(str(block.get("tool_use_id")))
            if waiting:
                waiting.pop()
            else:
                dropped.add(id(block))
    callers = {_caller(block) for blocks in replies for block in blocks}
    may_wait = {id(block) for block in replies[-1]} if turns[-1].ends_with_reply() else set()
    for call_id, waiting in pending.items():
        dropped.update(id(block) for block in waiting if id(block) not in may_wait and call_id not in callers)
    for turn in turns:
        turn.assistant.blocks = [block for block in turn.assistant.blocks if id(block) not in dropped]


def _is_server_result(block: BlockJson) -> bool:
    return str(block["type"]).endswith("_tool_result")


def _caller(block: BlockJson) -> str | None:
    caller = block.get("caller")
    if not isinstance(caller, dict):
        return None
    named = caller.get("tool_id", caller.get("toolId"))
    return named if isinstance(named, str) else None


def _each_call_once(blocks: list[BlockJson]) -> list[BlockJson]:
    """The blocks, with each repeated call of the same id as text: its result could not be distinguished."""
    seen: set[str] = set()
    kept = []
    for block in blocks:
        if block["type"] == "tool_use":
            if block["id"] in seen:
                block = {"type": "text", "text": as_json(block)}
            else:
                seen.add(block["id"])
        kept.append(block)
    return kept


def _orphan(result: BlockJson) -> list[BlockJson]:
    """The content of a result without its call: its text, its images and documents."""
    content = result.get("content")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
    text = orphan_text("\n".join(_part_text(part) for part in parts if part["type"] not in _MEDIA))
    texts: list[BlockJson] = [{"type": "text", "text": text}] if text else []
    return texts + [part for part in parts if part["type"] in _MEDIA]


_MEDIA = ("image", "document")


def _part_text(part: BlockJson) -> str:
    return part["text"] if part["type"] == "text" else as_json(part)


def _whole(turns: list[_Turn]) -> list[_Turn]:
    """The turns without thinking at the end of a reply. If nothing is left of a reply, the user's content after it is
    added to the turn before."""
    kept: list[_Turn] = []
    for turn in turns:
        blocks = turn.assistant.blocks
        while blocks and blocks[-1]["type"] in THINKING:
            blocks.pop()
        if kept and not blocks:
            previous = kept[-1].user
            for block in turn.user.blocks:
                previous.add([block], turn.user.native())
        else:
            kept.append(turn)
    return kept
