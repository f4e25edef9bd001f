"""A framework's messages as parts in their provider's own form, and back.

A provider binds reasoning to what stands before it, so contextstash must see where reasoning stands. Frameworks have
message types of their own: an adapter takes each apart into blocks of the provider's form, and makes the request of
its own objects again, of which only what left or was shortened is changed.

    >>> parts = [Part("user", {"type": "text", "text": "Go on."}, (0, 0))]
    >>> natives(parts, "anthropic")
    [{'role': 'user', 'content': [{'type': 'text', 'text': 'Go on.'}]}]
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from contextstash_storage.records import Native

RESULT_IDS = ("tool_use_id", "tool_call_id")
"""Under which names a result of Anthropic and of Chat Completions names its call; Responses has `call_id`."""


@dataclass(frozen=True, slots=True)
class Part:
    """A content block (Anthropic), an item (Responses) or a message (Chat Completions), and its place: the framework's
    message and the part in it. None if contextstash added it; `changed` if it shortened it."""

    role: str
    block: Native
    source: tuple[int, int] | None = None
    changed: bool = False


def natives(parts: Sequence[Part], form: str) -> list[Native]:
    """The provider's messages. Neighbouring blocks of one role are one message of Anthropic, as its API reads them."""
    if form != "anthropic":
        return [part.block for part in parts]
    merged: list[Native] = []
    for part in parts:
        if not merged or merged[-1]["role"] != part.role:
            merged.append({"role": part.role, "content": []})
        merged[-1]["content"].append(part.block)
    return merged


def parts_sent(sent: Sequence[Native], given: Sequence[Part], form: str) -> list[Part]:
    """The parts of a request, each with the place of the given part that it is. Of equal ones, such as the same words
    before each call, it is that of the longest run."""
    blocks = _blocks(sent, form)
    keys, known = [_key(block) for _, block in blocks], [_key(part.block) for part in given]
    source_of: dict[int, Part] = {}
    for run in SequenceMatcher(None, keys, known, autojunk=False).get_matching_blocks():
        source_of |= {run.a + at: given[run.b + at] for at in range(run.size)}
    return [
        Part(role, block, found.source, _plain(block) != _plain(found.block))
        if (found := source_of.get(place))
        else Part(role, block)
        for place, (role, block) in enumerate(blocks)
    ]


def by_message(parts: Sequence[Part]) -> list[tuple[int | None, list[Part]]]:
    """Neighbouring parts of one message of the framework together; each added part by itself, with None."""
    grouped: list[tuple[int | None, list[Part]]] = []
    for part in parts:
        place = part.source[0] if part.source else None
        if grouped and place is not None and grouped[-1][0] == place:
            grouped[-1][1].append(part)
        else:
            grouped.append((place, [part]))
    return grouped


def text_of(block: Native) -> str:
    """The text of a block that was added."""
    content = block.get("text", block.get("content"))
    if isinstance(content, list):
        return "\n\n".join(str(each.get("text", "")) for each in content if isinstance(each, dict))
    return str(content or "")


def _blocks(sent: Sequence[Native], form: str) -> list[tuple[str, Native]]:
    if form != "anthropic":
        return [(str(native.get("role", "")), native) for native in sent]
    blocks = []
    for native in sent:
        content = native["content"]
        listed = [{"type": "text", "text": content}] if isinstance(content, str) else content
        blocks += [(native["role"], block) for block in listed]
    return blocks


def _key(block: Native) -> str:
    """What tells whether two blocks are the same: of a result and a call its id, since the rest of them may change."""
    ids = ("call_id",) if block.get("type") == "function_call_output" else RESULT_IDS
    if named := next((name for name in ids if name in block), None):
        return f"result {block[named]}"
    if block.get("type") == "tool_use" or "call_id" in block:
        return f"call {block.get('call_id') or block['id']}"
    return json.dumps(_plain(block), sort_keys=True)


def _plain(block: Native) -> Native:
    return {key: each for key, each in block.items() if key != "cache_control"}
