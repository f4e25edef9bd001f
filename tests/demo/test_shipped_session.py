"""The session that ships with the package: small, whole, and like a real one."""

from __future__ import annotations

from importlib.resources import files
from itertools import pairwise

from contextstash.demo import sample_session

MAX_BYTES = 200_000


def test_it_is_small_enough_to_ship() -> None:
    assert len((files("contextstash.demo") / "session.jsonl").read_bytes()) <= MAX_BYTES


def test_user_and_assistant_take_turns_and_the_user_begins() -> None:
    roles = [native["role"] for native in sample_session()]
    assert roles == ["user", "assistant"] * (len(roles) // 2)
    assert 60 <= len(roles) <= 80


def test_each_tool_call_is_answered_in_the_next_message() -> None:
    natives = sample_session()
    for native, following in pairwise(natives):
        calls = {block["id"] for block in native["content"] if isinstance(block, dict) and block["type"] == "tool_use"}
        if calls:
            assert {block["tool_use_id"] for block in following["content"]} == calls


def test_it_has_the_kinds_of_content_of_real_sessions() -> None:
    blocks = [block for native in sample_session() for block in native["content"] if isinstance(block, dict)]
    assert {block["type"] for block in blocks} == {"text", "thinking", "tool_use", "tool_result"}
    outputs = [block["content"] for block in blocks if block["type"] == "tool_result"]
    assert len(set(outputs)) > 40
    assert any(block.get("is_error") for block in blocks)
    everything = sum(len(str(block)) for block in blocks)
    assert sum(map(len, outputs)) > 0.6 * everything
