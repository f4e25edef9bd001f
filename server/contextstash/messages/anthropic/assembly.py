"""Repairs and assembles a list of Anthropic messages so that the Messages API accepts it.

Each turn is one assistant message, then one user message with the results of its calls first, then everything else.
Content that is not valid on its own is left out: empty texts, thinking without a signature or at the end of a message,
server tool calls and results without their counterpart. A result without its call becomes text. Thinking blocks and
signatures are never changed, except that a cache breakpoint on them, which the API refuses, is removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple

from contextstash.messages.block_reader import ASSISTANT_FIRST, MISSING_RESULT, as_json, orphan_text
from contextstash.messages.breakpoints import BREAKPOINT_KEY, content_of
from contextstash.messages.pairs import Event, Place, calls_of_results
from contextstash_storage.records import Native

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
            self.order = _order(native)
            self.from_string = isinstance(native.get("content"), str)
        else:
            self.from_string = False

    def native(self) -> Native:
        content: object = self.blocks
        if self.from_string and len(self.blocks) == 1:
            content = self.blocks[0]["text"]
        values = {"role": self.role, "content": content}
        return {key: values[key] for key in self.order}


def _order(native: Native) -> tuple[str, ...]:
    return tuple([key for key in native if key in SENT_KEYS])


class _Message(NamedTuple):
    """A message, its blocks that can be sent, and the places of the calls among them."""

    native: Native
    blocks: list[BlockJson]
    calls: list[int]


Answer = tuple[Place, _Message]
"""The place of a result, and its message."""


@dataclass
class _Turn:
    """An assistant message, its calls by id, and the user's content after the results."""

    assistant: _Side = field(default_factory=lambda: _Side("assistant"))
    reply: str | None = None
    calls: dict[str, Place] = field(default_factory=dict)
    user: _Side = field(default_factory=lambda: _Side("user"))

    def natives(self, answers: Mapping[Place, Answer]) -> list[Native]:
        """The messages of the turn. `answers` are the results by the places of their calls."""
        found = [answers[call] for call in self.calls.values() if call in answers]
        found.sort(key=itemgetter(0))
        results = [message.blocks[place[1]] for place, message in found]
        results += [_missing(call_id) for call_id, call in self.calls.items() if call not in answers]
        if results:
            if found and not self.user.blocks:
                self.user.order = _order(found[0][1].native)
            self.user.from_string = False
            self.user.blocks = [*results, *self.user.blocks]
        return [side.native() for side in (self.assistant, self.user) if side.blocks]


def _missing(call_id: str) -> BlockJson:
    return {"type": "tool_result", "tool_use_id": call_id, "content": MISSING_RESULT, "is_error": True}


def assemble(natives: Sequence[Native]) -> list[Native]:
    """The messages of a valid request; equal to `natives` if these are valid already.

    System messages are left out: the API takes `system` in a field of its own.
    """
    spoken = [native for native in natives if native.get("role") in ("user", "assistant")]
    messages = [_message(native) for native in spoken]
    calls = calls_of_results(_events(messages))
    answers = {call: (place, messages[place[0]]) for place, call in calls.items()}
    turns = _turns(messages, calls, answers)
    _drop_unpaired_server_blocks(turns)
    sent = [message for turn in _whole(turns) for message in turn.natives(answers)]
    if sent and sent[0]["role"] == "assistant" and not _is_compacted(sent[0]):
        sent.insert(0, {"role": "user", "content": ASSISTANT_FIRST})
    return sent


def _message(native: Native) -> _Message:
    blocks = _sendable_blocks(native)
    return _Message(native, blocks, [index for index, block in enumerate(blocks) if block["type"] == "tool_use"])


def _events(messages: Sequence[_Message]) -> Iterator[Event]:
    turn = 0
    for at, message in enumerate(messages):
        if message.native["role"] == "assistant":
            for index in message.calls:
                yield Event((at, index), message.blocks[index]["id"], is_call=True, turn=turn)
            continue
        results = [index for index, block in enumerate(message.blocks) if block["type"] == "tool_result"]
        turn += len(results) < len(message.blocks)
        for index in results:
            yield Event((at, index), message.blocks[index]["tool_use_id"], is_call=False, turn=turn)


def _turns(messages: Sequence[_Message], calls: Mapping[Place, Place], answers: Mapping[Place, Answer]) -> list[_Turn]:
    """The messages' blocks in turns, except the results that answer a call."""
    turns = [_Turn()]
    for at, message in enumerate(messages):
        if message.native["role"] == "user":
            blocks = [
                shown
                for index, block in enumerate(message.blocks)
                if (at, index) not in calls
                for shown in (_orphan(block) if block["type"] == "tool_result" else [block])
            ]
            if blocks:
                turns[-1].user.add(blocks, message.native)
        elif message.blocks:
            if _begins_turn(turns[-1], at, message, answers):
                turns.append(_Turn())
            _add_reply(turns[-1], at, message)
    return turns


def _begins_turn(turn: _Turn, at: int, message: _Message, answers: Mapping[Place, Answer]) -> bool:
    """Whether a message of the assistant does not belong to the turn's reply any more. Claude Code writes results as
    soon as a tool ends, between the parts of one reply."""
    if turn.user.blocks or not turn.calls:
        return bool(turn.user.blocks)
    reply = message.native.get("id")
    if (reply is None or reply != turn.reply) and _is_answered(turn, at, answers):
        return True
    return any(message.blocks[index]["id"] in turn.calls for index in message.calls)


def _is_answered(turn: _Turn, at: int, answers: Mapping[Place, Answer]) -> bool:
    """Whether a call of the turn has a result before message `at`."""
    return any(call in answers and answers[call][0][0] < at for call in turn.calls.values())


def _add_reply(turn: _Turn, at: int, message: _Message) -> None:
    reply = message.native.get("id")
    turn.reply = reply if isinstance(reply, str) else None
    turn.assistant.add(message.blocks, message.native)
    for index in message.calls:
        turn.calls[message.blocks[index]["id"]] = at, index


def _is_compacted(message: Native) -> bool:
    """Whether the message begins with the provider's own summary of everything before it. Such a reply may be the first
    message of a list."""
    return any(block["type"] == "compaction" for block in content_of(message)[:1])


def _sendable_blocks(native: Native) -> list[BlockJson]:
    content = native["content"]
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content.strip() else []
    blocks = [_sendable(block, native["role"]) for block in content if _is_sendable(block)]
    return _each_call_once(blocks) if len(blocks) > 1 else blocks


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
    is_last = not (turns[-1].user.blocks or turns[-1].calls)
    may_wait = {id(block) for block in replies[-1]} if is_last else set()
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
