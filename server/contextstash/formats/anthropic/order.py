"""Moves tool results after their calls if a host recorded them in the reverse order.

Claude Code writes a tool's result when the tool ends, but the pieces of a reply as they stream in, so a result is
sometimes before its call in the transcript.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

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
