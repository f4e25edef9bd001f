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
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import groupby
from operator import attrgetter

from contextstash_storage.records import Native


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
    return [{"role": role, "content": [part.block for part in run]} for role, run in groupby(parts, attrgetter("role"))]


def parts_of(messages: Sequence[Native], form: str) -> list[Part]:
    """The parts of the provider's messages."""
    if form != "anthropic":
        return [Part(str(native.get("role", "")), native) for native in messages]
    parts = []
    for native in messages:
        content = native["content"] or []
        listed = [{"type": "text", "text": content}] if isinstance(content, str) else content
        parts += [Part(native["role"], block) for block in listed]
    return parts


def parts_sent(sent: Sequence[Native], given: Sequence[Part], form: str) -> list[Part]:
    """The parts of a request, each with the place of the given part that it is. Of equal ones, such as the same words
    before each call, it is that of the longest run."""
    found = parts_of(sent, form)
    keys, known = ([_key(part.block) for part in parts] for parts in (found, given))
    for run in SequenceMatcher(None, keys, known, autojunk=False).get_matching_blocks():
        for at in range(run.size):
            part, own = found[run.a + at], given[run.b + at]
            changed = _plain(part.block) != _plain(own.block)
            found[run.a + at] = replace(part, source=own.source, changed=changed)
    return found


def by_message(parts: Sequence[Part]) -> list[tuple[int | None, list[Part]]]:
    """Neighbouring parts of one message of the framework together; those that were added with None."""
    runs = groupby(parts, key=lambda part: part.source[0] if part.source else None)
    return [(place, list(run)) for place, run in runs]


def text_of(block: Native) -> str:
    """The text of a block that was added."""
    content = block.get("text", block.get("content", block.get("output")))
    if isinstance(content, list):
        return "\n\n".join(str(each.get("text", "")) for each in content if isinstance(each, dict))
    return str(content or "")


def result_id(block: Native) -> str | None:
    """The id of the call of which a block is the result; None if it is none."""
    # Of Responses; of Anthropic and of Chat Completions.
    ids = ("call_id",) if block.get("type") == "function_call_output" else ("tool_use_id", "tool_call_id")
    return next((block[name] for name in ids if name in block), None)


def _key(block: Native) -> str:
    """What tells whether two blocks are the same: of a result and a call its id, since the rest of them may change."""
    if (result := result_id(block)) is not None:
        return f"result {result}"
    if block.get("type") == "tool_use" or "call_id" in block:
        return f"call {block.get('call_id') or block['id']}"
    return json.dumps(_plain(block), sort_keys=True)


def _plain(block: Native) -> Native:
    return {key: each for key, each in block.items() if key != "cache_control"}
