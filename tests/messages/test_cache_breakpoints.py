"""Which of the recorded cache breakpoints are sent."""

from __future__ import annotations

import copy
import json
from typing import Any

from contextstash.messages.detection import get_format
from contextstash.messages.repair import render
from contextstash_storage.records import Native
from tests.support.provider_rules import violations

ANTHROPIC = get_format("anthropic")
EPHEMERAL = {"type": "ephemeral"}


def user(text: str, marked: bool = True) -> Native:
    block: dict[str, Any] = {"type": "text", "text": text}
    return {"role": "user", "content": [{**block, "cache_control": EPHEMERAL} if marked else block]}


def conversation(turns: int) -> list[Native]:
    """A breakpoint at the end of each request, as agents set them."""
    said = ([user(f"question {turn}"), {"role": "assistant", "content": f"answer {turn}"}] for turn in range(turns))
    return [message for pair in said for message in pair]


def marked_texts(natives: list[Native]) -> list[str]:
    return [
        block["text"]
        for native in natives
        for block in native["content"]
        if isinstance(block, dict) and "cache_control" in block
    ]


def test_two_are_reserved_for_the_tools_and_the_system_prompt() -> None:
    natives = conversation(6)
    before = copy.deepcopy(natives)
    assert marked_texts(render(ANTHROPIC, natives)) == ["question 4", "question 5"]
    assert natives == before


def test_breakpoints_inside_a_tool_result_count_and_are_removed_too() -> None:
    part = {"type": "text", "text": "lines", "cache_control": EPHEMERAL}
    result = {"type": "tool_result", "tool_use_id": "a", "content": [part, part, part], "cache_control": EPHEMERAL}
    use = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    natives = [
        user("go"),
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result, {"type": "text", "text": "and?", "cache_control": EPHEMERAL}]},
    ]
    assert violations("anthropic", natives) == ["The list has 6 cache breakpoints; at most 4 are allowed."]
    shown = render(ANTHROPIC, natives)
    assert "cache_control" not in json.dumps(shown)


def test_thinking_is_never_a_breakpoint() -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    answer = {"type": "text", "text": "yes"}
    natives = [
        user("go", marked=False),
        {"role": "assistant", "content": [{**thought, "cache_control": EPHEMERAL}, answer]},
    ]
    assert violations("anthropic", natives) == ["Message 1, block 0: thinking cannot be a cache breakpoint."]
    assert render(ANTHROPIC, natives)[1]["content"] == [thought, answer]
