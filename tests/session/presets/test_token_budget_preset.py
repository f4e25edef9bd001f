"""The preset `token-budget` by its numbers: 200,000 - 32,000; 85 %; 2 turns, 40,000, 20,000; 2,500."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from contextstash_storage.records import Native
from tests.support.stashes import SESSION, stash_at, view


def session_of(results: Sequence[int], turns: int) -> list[Native]:
    """A chat session in `turns` user turns, with tool results of so many tokens (four characters each)."""
    natives: list[Native] = [{"role": "system", "content": "Be brief."}]
    per_turn = -(-len(results) // turns)
    for place, tokens in enumerate(results):
        if place % per_turn == 0:
            natives.append({"role": "user", "content": f"Turn {place}."})
        function = {"name": "bash", "arguments": f'{{"command": "run {place}"}}'}
        call = {"id": f"call_{place:020}", "type": "function", "function": function}
        natives.append({"role": "assistant", "content": None, "tool_calls": [call]})
        text = f"{place:04}" * tokens
        natives.append({"role": "tool", "tool_call_id": call["id"], "content": text})
    return natives


async def pruned(path: Path, results: Sequence[int], turns: int) -> int:
    async with stash_at(path, preset="token-budget", output_tokens=100_000) as stash:
        await stash.record_messages(session_of(results, turns), session_id=SESSION)
        return len((await stash.prune_tool_outputs(SESSION)).archived)


@pytest.mark.parametrize(
    ("results", "turns", "archived"),
    [
        ([20_001, 20_000, 20_000, 500, 500], 5, 1),
        ([20_000, 20_000, 20_000, 500, 500], 5, 0),
        ([20_001, 20_000, 20_001, 500, 500], 5, 2),
        ([20_001, 20_000, 20_000], 1, 0),
    ],
    ids=["more than 20,000 beyond 40,000", "exactly 20,000", "an output that crosses 40,000 goes too", "one turn"],
)
async def test_it_protects_40_000_and_two_turns_and_saves_more_than_20_000(
    tmp_path: Path, results: list[int], turns: int, archived: int
) -> None:
    assert await pruned(tmp_path / "p.db", results, turns) == archived


@pytest.mark.parametrize(
    ("tokens", "level"),
    [(142_800, "ok"), (142_801, "compact"), (168_000, "compact"), (168_001, "overflow")],
)
async def test_its_levels_begin_above_85_percent_of_168_000(tmp_path: Path, tokens: int, level: str) -> None:
    async with stash_at(tmp_path / "l.db", preset="token-budget") as stash:
        await stash.record_messages([{"role": "user", "content": "x" * (4 * (tokens - 4))}], session_id=SESSION)
        estimate = await stash.estimate_context(SESSION)
        assert (estimate.tokens, estimate.level, estimate.usable) == (tokens, level, 168_000)
        assert estimate.method.startswith("counted with characters / 4")


async def test_an_image_counts_1_000_and_a_message_4(tmp_path: Path) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 4_000}}
    async with stash_at(tmp_path / "i.db", preset="token-budget") as stash:
        await stash.record_messages([{"role": "user", "content": [image]}], session_id=SESSION, format="openai-chat")
        assert (await stash.estimate_context(SESSION)).tokens == 1_004


async def test_a_compaction_leaves_the_system_message_and_the_summary(tmp_path: Path) -> None:
    natives = [*session_of([5_000] * 6, 3), {"role": "assistant", "content": "Done."}]
    async with stash_at(tmp_path / "c.db", preset="token-budget") as stash:
        await stash.record_messages(natives, whole=True, session_id=SESSION)
        result = await stash.compact_session(SESSION, summary="All six runs passed.")
        shown = await view(stash)
    assert result.strategy == "host"
    assert [message["role"] for message in shown] == ["system", "user"]
    assert "All six runs passed." in shown[1]["content"]


@pytest.mark.parametrize(("tokens", "cut"), [(2_499, False), (2_500, False), (2_501, True)])
async def test_one_output_is_cut_in_its_middle_above_2_500_tokens(tmp_path: Path, tokens: int, cut: bool) -> None:
    natives = session_of([tokens], 1)
    async with stash_at(tmp_path / "o.db", preset="token-budget") as stash:
        await stash.record_messages(natives, whole=True, session_id=SESSION)
        shown = (await view(stash))[-1]["content"]
    assert (shown != natives[-1]["content"]) == cut
    assert len(shown) <= 10_100
