"""The presets by their numbers: `staged`, `token-budget`, `byte-budget`, `n-or-k`; `rolling` has a file of its own."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from contextstash.tokenizer import count_with
from contextstash_storage.records import Native
from tests.support.stashes import SESSION, reply, results, round_of, rounds, stash_at, user, valid_view, view

WORD = " word"
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 4_000}}


def said(words: int, role: str = "user") -> Native:
    """A message of so many tokens."""
    return {"role": role, "content": WORD * words}


def talk(messages: int, words: int) -> list[Native]:
    """So many messages of so many tokens each."""
    return [said(words, ("user", "assistant")[place % 2]) for place in range(messages)]


COUNTS: list[tuple[str, list[Native], int]] = [
    ("staged", [user(3)], 1),
    ("staged", [user(4)], 2),
    ("staged", [user(5)], 2),
    ("staged", [user(8)], 3),
    ("token-budget", [{"role": "user", "content": [IMAGE]}], 1_004),
    ("rolling", [{"role": "user", "content": [IMAGE]}], 1_200),
    ("byte-budget", [{"role": "user", "content": "é" + "abcd"}], 2),
    ("byte-budget", [{"role": "user", "content": "é" * 2 + "abcd"}], 2),
    ("byte-budget", [{"role": "user", "content": "é" * 4 + "abcd"}], 3),
    ("n-or-k", [said(100), said(50, "assistant")], 100 + 50 + 2 * 4 + 3),
]


async def test_each_counts_in_its_own_way(tmp_path: Path) -> None:
    for place, (preset, natives, tokens) in enumerate(COUNTS):
        async with stash_at(tmp_path / f"{place}.db", preset=preset) as stash:
            model = "gpt-4" if preset == "n-or-k" else None
            await stash.record_messages(natives, session_id=SESSION, format="openai-chat", model=model)
            assert (preset, (await stash.estimate_context(SESSION)).tokens) == (preset, tokens)


LEVELS = {
    "staged": {"ok": 126_000, "prune": 153_000, "compact": 171_000, "critical": 180_000, "overflow": 0},
    "token-budget": {"ok": 142_800, "compact": 168_000, "overflow": 0},
}
"""The largest size of each level but the last one, which has none; that of the last but one is what is usable."""


@pytest.mark.parametrize("preset", LEVELS)
async def test_levels_begin_above_these_sizes(tmp_path: Path, preset: str) -> None:
    usable = max(LEVELS[preset].values())
    beside = {"staged": 1, "token-budget": 4}[preset]
    for (level_below, size), (level_above, _) in pairwise(LEVELS[preset].items()):
        for tokens, level in ((size, level_below), (size + 1, level_above)):
            async with stash_at(tmp_path / f"{tokens}.db", preset=preset) as stash:
                await stash.record_messages([user(4 * (tokens - beside))], session_id=SESSION)
                estimate = await stash.estimate_context(SESSION)
            assert (estimate.tokens, estimate.level, estimate.usable) == (tokens, level, usable)
            assert estimate.method.startswith("counted with characters / 4")


async def viewed(path: Path, preset: str, natives: Sequence[Native], **settings: Any) -> list[Native]:
    """The messages to send of such a session, held against the provider's rules."""
    async with stash_at(path / "v.db", preset=preset, **settings) as stash:
        await stash.record_messages(natives, whole=True, session_id=SESSION)
        return await valid_view(stash, "openai-chat")


PRUNED = "[contextstash: output pruned to save context, kept as out_"


@pytest.mark.parametrize(("tokens", "kept"), [(126_000, 8), (126_001, 5)])
async def test_staged_keeps_the_last_5_outputs_above_70_percent(tmp_path: Path, tokens: int, kept: int) -> None:
    natives = rounds([4_000] * 8)
    outputs_and_calls = 8 * (4_000 // 4 + 1) + 8 * (16 // 4 + 1)
    natives.insert(0, user(4 * (tokens - outputs_and_calls - 1)))
    async with stash_at(tmp_path / "p.db", preset="staged", automatic=True) as stash:
        answer = await stash.record_messages(natives, whole=True, session_id=SESSION)
        shown = results(await valid_view(stash, "openai-chat"))
    assert [not text.startswith(PRUNED) for text in shown] == [False] * (8 - kept) + [True] * kept
    assert len(answer.done) == (kept == 5)


@pytest.mark.parametrize(("size", "kept"), [(122_000, 5), (123_000, 2)])
async def test_staged_keeps_the_last_2_if_that_leaves_it_above_85_percent(tmp_path: Path, size: int, kept: int) -> None:
    natives = [user(40), *rounds([size] * 8)]
    shown = results(await viewed(tmp_path, "staged", natives, automatic=True, output_bytes=None))
    assert sum(not text.startswith(PRUNED) for text in shown) == kept


async def test_staged_summarizes_all_but_system_and_the_last_4_if_that_is_not_enough(tmp_path: Path) -> None:
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
async def test_staged_cuts_one_output_in_its_middle_above_50_000_bytes(tmp_path: Path, size: int, cut: bool) -> None:
    text = ("é" * 25_000 + "x")[: size // 2] + "x" * (size - 2 * (size // 2))
    natives = [user(4), *round_of(0, text)]
    shown = results(await viewed(tmp_path, "staged", natives))[0]
    assert len(text.encode()) == size
    assert (shown != text) == cut
    assert len(shown.encode()) <= 50_000
    assert shown.startswith("é" * 1_000)


def session_in_turns(sizes: Sequence[int], turns: int) -> list[Native]:
    """A chat session in `turns` user turns, with tool results of so many tokens (four characters each)."""
    natives: list[Native] = [{"role": "system", "content": "Be brief."}]
    per_turn = -(-len(sizes) // turns)
    for place, tokens in enumerate(sizes):
        if place % per_turn == 0:
            natives.append({"role": "user", "content": f"Turn {place}."})
        function = {"name": "bash", "arguments": f'{{"command": "run {place}"}}'}
        call = {"id": f"call_{place:020}", "type": "function", "function": function}
        natives.append({"role": "assistant", "content": None, "tool_calls": [call]})
        text = f"{place:04}" * tokens
        natives.append({"role": "tool", "tool_call_id": call["id"], "content": text})
    return natives


@pytest.mark.parametrize(
    ("sizes", "turns", "archived"),
    [
        ([20_001, 20_000, 20_000, 500, 500], 5, 1),
        ([20_000, 20_000, 20_000, 500, 500], 5, 0),
        ([20_001, 20_000, 20_001, 500, 500], 5, 2),
        ([20_001, 20_000, 20_000], 1, 0),
    ],
    ids=["more than 20,000 beyond 40,000", "exactly 20,000", "an output that crosses 40,000 goes too", "one turn"],
)
async def test_token_budget_protects_40_000_and_two_turns_and_saves_more_than_20_000(
    tmp_path: Path, sizes: list[int], turns: int, archived: int
) -> None:
    async with stash_at(tmp_path / "p.db", preset="token-budget", output_tokens=100_000) as stash:
        await stash.record_messages(session_in_turns(sizes, turns), session_id=SESSION)
        assert len((await stash.prune_tool_outputs(SESSION)).archived) == archived


async def test_token_budget_leaves_the_system_message_and_the_summary_of_a_compaction(tmp_path: Path) -> None:
    natives = [*session_in_turns([5_000] * 6, 3), {"role": "assistant", "content": "Done."}]
    async with stash_at(tmp_path / "c.db", preset="token-budget") as stash:
        await stash.record_messages(natives, whole=True, session_id=SESSION)
        result = await stash.compact_session(SESSION, summary="All six runs passed.")
        shown = await view(stash)
    assert result.strategy == "host"
    assert [message["role"] for message in shown] == ["system", "user"]
    assert "All six runs passed." in shown[1]["content"]


@pytest.mark.parametrize(("tokens", "cut"), [(2_499, False), (2_500, False), (2_501, True)])
async def test_token_budget_cuts_one_output_in_its_middle_above_2_500_tokens(
    tmp_path: Path, tokens: int, cut: bool
) -> None:
    natives = session_in_turns([tokens], 1)
    shown = (await viewed(tmp_path, "token-budget", natives))[-1]["content"]
    assert (shown != natives[-1]["content"]) == cut
    assert len(shown) <= 10_100


CALL_BYTES = 30
TOO_LONG = (
    "Error code: 400 - {'type': 'error', 'error': {'type': 'invalid_request_error',"
    " 'message': 'prompt is too long: 13000 tokens > 12000 maximum'}}"
)


def viewed_file(place: int, size: int) -> list[Native]:
    """A file that was looked at, of so many bytes; the call takes CALL_BYTES."""
    return round_of(place, f"{place:04}" * (size // 4), tool="view_file", argument=f"src/{place:02}.rs")


def viewed_files(bytes_in_all: int) -> list[Native]:
    """Eight files of 4,000 bytes, and a user message that makes it so many bytes in all."""
    files = [native for place in range(8) for native in viewed_file(place, 4_000)]
    calls = sum(len("view_file") + len('{"path":"src/00.rs"}') for _ in range(8))
    rounding = 8 * (-(-29 // 4) * 4 - 29)
    return [user(bytes_in_all - 32_000 - calls - rounding), *files]


@pytest.mark.parametrize(("size", "kept"), [(49_996, 8), (50_000, 8), (50_001, 6)])
async def test_byte_budget_keeps_6_outputs_above_50_000_bytes(tmp_path: Path, size: int, kept: int) -> None:
    shown = results(await viewed(tmp_path, "byte-budget", viewed_files(size), automatic=True))
    assert [len(text) == 4_000 for text in shown] == [False] * (8 - kept) + [True] * kept


async def test_byte_budget_makes_of_an_older_output_what_was_viewed(tmp_path: Path) -> None:
    shown = results(await viewed(tmp_path, "byte-budget", viewed_files(50_001), automatic=True))[0]
    assert shown.startswith("[Previously viewed: File: src/00.rs, kept as out_")


async def test_byte_budget_never_compacts_automatically(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "c.db", preset="byte-budget", automatic=True) as stash:
        answer = await stash.record_messages([user(400_000), *viewed_files(50_001)], session_id=SESSION)
    assert [line.split()[0] for line in answer.done] == ["Archived"]


async def test_byte_budget_keeps_3_on_a_token_limit_error_and_cuts_what_is_left_to_1_000_bytes(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "r.db", preset="byte-budget") as stash:
        await stash.record_messages(viewed_files(45_000), session_id=SESSION)
        answer = await stash.recover_context(SESSION, error=TOO_LONG)
        assert answer.context is not None
        shown = results(answer.context.messages)
    assert answer.recovered
    assert [text.startswith("[Previously viewed: ") for text in shown] == [True] * 5 + [False] * 3
    assert all(900 < len(text.encode()) <= 1_000 for text in shown[5:])
    assert (answer.limit, answer.prompt_tokens) == (12_000, 13_000)


@pytest.mark.parametrize(("size", "cut"), [(3_996, False), (4_000, False), (4_004, True)])
async def test_byte_budget_cuts_one_output_to_4_000_bytes_from_its_head(tmp_path: Path, size: int, cut: bool) -> None:
    natives = [user(4), *viewed_file(0, size)]
    shown = results(await viewed(tmp_path, "byte-budget", natives))[0]
    assert (shown != natives[-1]["content"]) == cut
    assert shown.startswith("0000" * 999)
    assert not shown.startswith("0000" * 1_001) or not cut
    assert len(shown.encode()) <= 4_100


@pytest.mark.parametrize(("variant", "size", "keep"), [("cost", 30_000, 4), ("quality", 80_000, 10)])
async def test_byte_budget_has_variants_for_cost_and_quality(
    tmp_path: Path, variant: str, size: int, keep: int
) -> None:
    files = [native for place in range(12) for native in viewed_file(place, 2_000)]
    async with stash_at(tmp_path / "t.db", preset=f"byte-budget-{variant}", automatic=True) as stash:
        await stash.record_messages([user(size - 24_348 - 36), *files], session_id=SESSION)
        assert not any("Previously" in text for text in results(await view(stash)))
        await stash.record_messages([user(100)], session_id=SESSION)
        shown = results(await view(stash))
    assert sum(text.startswith("[Previously") for text in shown) == 12 - keep


count = count_with("cl100k_base")


@pytest.mark.parametrize(("messages", "summarized"), [(29, False), (30, True), (31, True)])
async def test_n_or_k_compacts_after_30_messages_since_the_last_summary(
    tmp_path: Path, messages: int, summarized: bool
) -> None:
    natives = talk(messages, 40)
    async with stash_at(tmp_path / "n.db", preset="n-or-k", automatic=True) as stash:
        answer = await stash.record_messages(natives, whole=True, session_id=SESSION)
        shown = await valid_view(stash, "openai-chat")
    assert any("Summarized" in line for line in answer.done) == summarized
    assert shown[-6:] == natives[-6:]
    assert len(shown) == (7 if summarized else messages)


async def test_n_or_k_counts_again_after_a_summary_and_leaves_out_system_messages(tmp_path: Path) -> None:
    natives = [{"role": "system", "content": "Be brief."}]
    natives += talk(53, 40)
    async with stash_at(tmp_path / "a.db", preset="n-or-k", automatic=True) as stash:
        assert not (await stash.record_messages(natives[:30], whole=True, session_id=SESSION)).done
        assert (await stash.record_messages(natives[:31], whole=True, session_id=SESSION)).done
        trigger = (await stash.estimate_context(SESSION)).messages_trigger
        assert trigger is not None
        assert (trigger.value, trigger.threshold) == (6, 30)
        assert not (await stash.record_messages(natives[:54], whole=True, session_id=SESSION)).done
        assert (await stash.record_messages([*natives, said(9)], whole=True, session_id=SESSION)).done


@pytest.mark.parametrize(("tokens", "summarized"), [(127_999, False), (128_000, True), (128_001, True)])
async def test_n_or_k_compacts_at_128_000_tokens(tmp_path: Path, tokens: int, summarized: bool) -> None:
    natives = talk(12, 100)
    overhead = 3 + 4 * 13
    assert count(WORD * 100) == 100
    natives.insert(2, said(tokens - overhead - 1_200))
    async with stash_at(tmp_path / "k.db", preset="n-or-k", automatic=True, window=200_000) as stash:
        answer = await stash.record_messages(natives, whole=True, session_id=SESSION)
        assert bool(answer.done) == summarized
        if not summarized:
            assert answer.tokens == tokens


@pytest.mark.parametrize(("messages", "summarized"), [(9, False), (10, True)])
async def test_n_or_k_never_summarizes_fewer_than_10_messages(tmp_path: Path, messages: int, summarized: bool) -> None:
    natives = talk(messages, 1_000)
    async with stash_at(tmp_path / "m.db", preset="n-or-k", automatic=True, tokens_at=5_000) as stash:
        assert bool((await stash.record_messages(natives, whole=True, session_id=SESSION)).done) == summarized


async def test_n_or_k_leaves_out_what_does_not_fit_oldest_first(tmp_path: Path) -> None:
    natives = talk(12, 1_000)
    async with stash_at(tmp_path / "f.db", preset="n-or-k", window=12_096) as stash:
        await stash.record_messages(natives, whole=True, session_id=SESSION)
        answer = await stash.get_context(SESSION)
    assert answer.budget == 8_000
    assert answer.fits
    assert answer.left_out is not None
    assert (answer.left_out.first_seq, answer.left_out.messages) == (0, 5)
    assert answer.messages[-7:] == natives[-7:]


async def test_n_or_k_sends_never_fewer_than_6_recent_messages_and_says_that_it_is_over(tmp_path: Path) -> None:
    natives = talk(12, 1_000)
    async with stash_at(tmp_path / "r.db", preset="n-or-k", window=9_000) as stash:
        await stash.record_messages(natives, whole=True, session_id=SESSION)
        answer = await stash.get_context(SESSION)
    assert [native for native in answer.messages if native in natives] == natives[-6:]
    assert not answer.fits
    assert "must stay" in (answer.reason or "")


@pytest.mark.parametrize(("words", "used"), [(2_200, True), (2_500, False)])
async def test_n_or_k_does_not_use_a_summary_over_30_percent_of_the_room(
    tmp_path: Path, words: int, used: bool
) -> None:
    natives = talk(12, 1_500)
    async with stash_at(tmp_path / "s.db", preset="n-or-k", window=12_096) as stash:
        await stash.record_messages(natives, whole=True, session_id=SESSION)
        await stash.compact_session(SESSION, summary="Summary:" + WORD * words)
        shown = (await stash.get_context(SESSION)).messages
    assert any("Summary:" in native["content"] for native in shown) == used
    assert shown[-6:] == natives[-6:] or not used


async def test_n_or_k_never_prunes_automatically(tmp_path: Path) -> None:
    natives = [user(400), reply(400)] * 6
    async with stash_at(tmp_path / "q.db", preset="n-or-k", automatic=True, window=5_000) as stash:
        assert (await stash.record_messages(natives, whole=True, session_id=SESSION)).done == []
