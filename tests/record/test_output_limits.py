"""`record_messages`: outputs over a limit are truncated in the first view already, and nothing of them is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contextstash.stash import Stash
from contextstash_storage.records import Native
from tests.support.stashes import SESSION, all_handles, as_bytes, history, stash_at, view, whole_output


def called(call_id: str, text: str, tool: str = "Bash", command: str = "make test") -> list[Native]:
    """A tool call and its result as Anthropic writes them."""
    call = {"type": "tool_use", "id": call_id, "name": tool, "input": {"command": command}}
    result = {"type": "tool_result", "tool_use_id": call_id, "content": text}
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]


def session(*outputs: str) -> list[Native]:
    messages: list[Native] = [{"role": "user", "content": "Run the tests."}]
    for number, text in enumerate(outputs):
        messages += called(f"toolu_{number:08}", text)
    return messages


async def shown_outputs(stash: Stash) -> list[Any]:
    """What the model sees of each tool result."""
    natives = await view(stash)
    contents = [native["content"] for native in natives if isinstance(native["content"], list)]
    return [block["content"] for content in contents for block in content if block["type"] == "tool_result"]


def numbered(characters: int) -> str:
    return "".join(f"{number:07d}\n" for number in range(characters // 8 + 1))[:characters]


@pytest.mark.parametrize(
    ("preset", "text", "said"),
    [
        ("staged", "x" * 50_001, "101 bytes cut here; whole output: "),
        ("token-budget", "x" * 10_001, "101 characters cut here; whole output: "),
        ("rolling", "line\n" * 2_001, "2 lines, 10 characters cut here; whole output: "),
        ("rolling", numbered(204_801), "204,801 characters"),
        ("byte-budget", "x" * 4_001, "1 byte cut here; whole output: "),
        ("default", numbered(200_000), "cut here; whole output: "),
    ],
)
async def test_an_output_over_it_is_shown_cut_and_is_retrieved_whole(
    tmp_path: Path, preset: str, text: str, said: str
) -> None:
    messages = session(text)
    messages[-1]["content"][0]["is_error"] = preset == "staged"
    async with stash_at(tmp_path / "stash.db", preset=preset, window=1_000_000) as stash:
        await stash.record_messages(messages, session_id=SESSION)
        [shown] = await shown_outputs(stash)
        [handle] = await all_handles(stash)
        assert said in shown
        assert handle in shown
        assert await whole_output(stash, handle) == text
        assert as_bytes(await history(stash)) == as_bytes(messages)
        assert (await view(stash))[-1]["content"][0]["is_error"] is (preset == "staged")


async def test_our_own_retrievals_are_never_cut_unless_other_commands_follow(tmp_path: Path) -> None:
    own = "contextstash show out_k3f9x2ab"
    messages: list[Native] = [{"role": "user", "content": "Read it."}]
    messages += called("toolu_00000001", "x" * 9_000, "get_archived_output")
    messages += called("toolu_00000002", "x" * 9_000, "mcp__contextstash__get_archived_output")
    messages += called("toolu_00000003", "x" * 9_000, command=own)
    messages += called("toolu_00000004", "y" * 9_000, command=f"{own}; make test")
    async with stash_at(tmp_path / "stash.db", preset="byte-budget") as stash:
        await stash.record_messages(messages, session_id=SESSION)
        *ours, last = await shown_outputs(stash)
        assert ours == ["x" * 9_000] * 3
        assert len(last) < 4_200


async def test_outputs_of_parallel_calls_share_half_of_a_small_window(tmp_path: Path) -> None:
    long = [f"out{each}\n" + "".join(f"row {line} of {each}\n" for line in range(900)) for each in range(4)]
    calls = [
        {"type": "tool_use", "id": f"t{each}", "name": "Bash", "input": {"command": f"cat {each}"}} for each in range(5)
    ]
    texts = [*long, "short"]
    results = [{"type": "tool_result", "tool_use_id": f"t{each}", "content": text} for each, text in enumerate(texts)]
    natives = [*session()[:1], {"role": "assistant", "content": calls}, {"role": "user", "content": results}]
    async with stash_at(tmp_path / "stash.db", window=16_000, output_reserve=0) as stash:
        result = await stash.record_messages(natives, session_id=SESSION)
        shown = await shown_outputs(stash)
        assert result.tokens < 16_000 * 0.55
        assert shown[-1] == "short"
        assert all("row 0 of" in text and "row 899 of" in text for text in shown[:-1])
        handles = await all_handles(stash)
        assert sorted([await whole_output(stash, handle) for handle in handles]) == sorted(texts)
        await stash.record_messages(called("t9", long[0]), session_id=SESSION)
        assert len((await shown_outputs(stash))[-1]) > 1.3 * len(shown[0])
