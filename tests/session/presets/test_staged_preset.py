"""The preset `staged` by its numbers: 70 / 85 / 95 % of 180,000; keep 5, then 2; last 4; 50,000 bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.stashes import SESSION, reply, results, round_of, rounds, stash_at, user, valid_view, view

PRUNED = "[contextstash: output pruned to save context, kept as out_"


@pytest.mark.parametrize(
    ("tokens", "level"),
    [
        (126_000, "ok"),
        (126_001, "prune"),
        (153_000, "prune"),
        (153_001, "compact"),
        (171_000, "compact"),
        (171_001, "critical"),
        (180_000, "critical"),
        (180_001, "overflow"),
    ],
)
async def test_its_levels_begin_above_70_85_and_95_percent_of_180_000(tmp_path: Path, tokens: int, level: str) -> None:
    async with stash_at(tmp_path / "l.db", preset="staged") as stash:
        await stash.record_messages([user(4 * (tokens - 1))], session_id=SESSION)
        estimate = await stash.estimate_context(SESSION)
    assert (estimate.tokens, estimate.level, estimate.usable) == (tokens, level, 180_000)


@pytest.mark.parametrize(("characters", "tokens"), [(3, 1), (4, 2), (5, 2), (8, 3)])
async def test_it_counts_characters_by_four_and_one(tmp_path: Path, characters: int, tokens: int) -> None:
    async with stash_at(tmp_path / "c.db", preset="staged") as stash:
        await stash.record_messages([user(characters)], session_id=SESSION)
        assert (await stash.estimate_context(SESSION)).tokens == tokens


@pytest.mark.parametrize(("tokens", "kept"), [(126_000, 8), (126_001, 5)])
async def test_above_70_percent_it_keeps_the_last_5_outputs(tmp_path: Path, tokens: int, kept: int) -> None:
    natives = rounds([4_000] * 8)
    outputs_and_calls = 8 * (4_000 // 4 + 1) + 8 * (16 // 4 + 1)
    natives.insert(0, user(4 * (tokens - outputs_and_calls - 1)))
    async with stash_at(tmp_path / "p.db", preset="staged", automatic=True) as stash:
        answer = await stash.record_messages(natives, whole=True, session_id=SESSION)
        shown = results(await valid_view(stash, "openai-chat"))
    assert [not text.startswith(PRUNED) for text in shown] == [False] * (8 - kept) + [True] * kept
    assert len(answer.done) == (kept == 5)


@pytest.mark.parametrize(("size", "kept"), [(122_000, 5), (123_000, 2)])
async def test_it_keeps_the_last_2_if_that_leaves_it_above_85_percent(tmp_path: Path, size: int, kept: int) -> None:
    natives = [user(40), *rounds([size] * 8)]
    async with stash_at(tmp_path / "h.db", preset="staged", automatic=True, output_bytes=None) as stash:
        await stash.record_messages(natives, whole=True, session_id=SESSION)
        shown = results(await valid_view(stash, "openai-chat"))
    assert sum(not text.startswith(PRUNED) for text in shown) == kept


async def test_it_summarizes_all_but_system_and_the_last_4_if_that_is_not_enough(tmp_path: Path) -> None:
    system = {"role": "system", "content": "Be brief."}
    recent = [reply(40), user(40), reply(40), user(40)]
    natives = [system, user(400_000), *rounds([400] * 3), user(250_000), *recent]
    async with stash_at(tmp_path / "s.db", preset="staged", automatic=True) as stash:
        await stash.record_messages(natives, whole=True, session_id=SESSION)
        shown = await valid_view(stash, "openai-chat")
        assert (await stash.estimate_context(SESSION)).level == "ok"
    assert shown[0] == system
    assert shown[1]["role"] == "user"
    assert shown[1]["content"].startswith("[Summary of the conversation so far]")
    assert shown[2:] == recent


@pytest.mark.parametrize(("size", "cut"), [(49_999, False), (50_000, False), (50_001, True)])
async def test_one_output_is_cut_in_its_middle_above_50_000_bytes(tmp_path: Path, size: int, cut: bool) -> None:
    text = ("é" * 25_000 + "x")[: size // 2] + "x" * (size - 2 * (size // 2))
    natives = [user(4), *round_of(0, text)]
    async with stash_at(tmp_path / "o.db", preset="staged") as stash:
        await stash.record_messages(natives, whole=True, session_id=SESSION)
        shown = results(await view(stash))[0]
    assert len(text.encode()) == size
    assert (shown != text) == cut
    assert len(shown.encode()) <= 50_000
    assert shown.startswith("é" * 1_000)
