"""The preset `byte-budget` by its numbers: 50,000 bytes; 6 recent; on an error 3, 30,000 and 1,000; 4,000 an output."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextstash_storage.records import Native
from tests.support.stashes import SESSION, results, round_of, stash_at, user, valid_view, view

CALL_BYTES = 30
TOO_LONG = (
    "Error code: 400 - {'type': 'error', 'error': {'type': 'invalid_request_error',"
    " 'message': 'prompt is too long: 13000 tokens > 12000 maximum'}}"
)


def viewed(place: int, size: int) -> list[Native]:
    """A file that was looked at, of so many bytes; the call takes CALL_BYTES."""
    return round_of(place, f"{place:04}" * (size // 4), tool="view_file", argument=f"src/{place:02}.rs")


def session_of(bytes_in_all: int) -> list[Native]:
    """Eight files of 4,000 bytes, and a user message that makes it so many bytes in all."""
    files = [native for place in range(8) for native in viewed(place, 4_000)]
    calls = sum(len("view_file") + len('{"path":"src/00.rs"}') for _ in range(8))
    rounding = 8 * (-(-29 // 4) * 4 - 29)
    return [user(bytes_in_all - 32_000 - calls - rounding), *files]


@pytest.mark.parametrize(("size", "kept"), [(49_996, 8), (50_000, 8), (50_001, 6)])
async def test_above_50_000_bytes_it_keeps_6_outputs(tmp_path: Path, size: int, kept: int) -> None:
    async with stash_at(tmp_path / "p.db", preset="byte-budget", automatic=True) as stash:
        await stash.record_messages(session_of(size), session_id=SESSION)
        shown = results(await valid_view(stash, "openai-chat"))
    assert [len(text) == 4_000 for text in shown] == [False] * (8 - kept) + [True] * kept


async def test_an_older_output_becomes_what_was_viewed(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "v.db", preset="byte-budget", automatic=True) as stash:
        await stash.record_messages(session_of(50_001), session_id=SESSION)
        shown = results(await view(stash))[0]
    assert shown.startswith("[Previously viewed: File: src/00.rs, kept as out_")


async def test_it_never_compacts_automatically(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "c.db", preset="byte-budget", automatic=True) as stash:
        answer = await stash.record_messages([user(400_000), *session_of(50_001)], session_id=SESSION)
    assert [line.split()[0] for line in answer.done] == ["Archived"]


@pytest.mark.parametrize(("characters", "tokens"), [(1, 2), (2, 2), (4, 3)])
async def test_it_counts_bytes_by_four(tmp_path: Path, characters: int, tokens: int) -> None:
    async with stash_at(tmp_path / "b.db", preset="byte-budget") as stash:
        await stash.record_messages([{"role": "user", "content": "é" * characters + "abcd"}], session_id=SESSION)
        assert (await stash.estimate_context(SESSION)).tokens == -(-(2 * characters + 4) // 4) == tokens


async def test_on_a_token_limit_error_it_keeps_3_and_cuts_what_is_left_to_1_000_bytes(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "r.db", preset="byte-budget") as stash:
        await stash.record_messages(session_of(45_000), session_id=SESSION)
        answer = await stash.recover_context(SESSION, error=TOO_LONG)
        assert answer.context is not None
        shown = results(answer.context.messages)
    assert answer.recovered
    assert [text.startswith("[Previously viewed: ") for text in shown] == [True] * 5 + [False] * 3
    assert all(900 < len(text.encode()) <= 1_000 for text in shown[5:])
    assert (answer.limit, answer.prompt_tokens) == (12_000, 13_000)


@pytest.mark.parametrize(("size", "cut"), [(3_996, False), (4_000, False), (4_004, True)])
async def test_one_output_is_cut_to_4_000_bytes_from_its_head(tmp_path: Path, size: int, cut: bool) -> None:
    natives = [user(4), *viewed(0, size)]
    async with stash_at(tmp_path / "o.db", preset="byte-budget") as stash:
        await stash.record_messages(natives, whole=True, session_id=SESSION)
        shown = results(await view(stash))[0]
    assert (shown != natives[-1]["content"]) == cut
    assert shown.startswith("0000" * 999)
    assert not shown.startswith("0000" * 1_001) or not cut
    assert len(shown.encode()) <= 4_100


@pytest.mark.parametrize(("variant", "size", "keep"), [("cost", 30_000, 4), ("quality", 80_000, 10)])
async def test_its_variants_for_cost_and_quality(tmp_path: Path, variant: str, size: int, keep: int) -> None:
    files = [native for place in range(12) for native in viewed(place, 2_000)]
    async with stash_at(tmp_path / "t.db", preset=f"byte-budget-{variant}", automatic=True) as stash:
        await stash.record_messages([user(size - 24_348 - 36), *files], session_id=SESSION)
        assert not any("Previously" in text for text in results(await view(stash)))
        await stash.record_messages([user(100)], session_id=SESSION)
        shown = results(await view(stash))
    assert sum(text.startswith("[Previously") for text in shown) == 12 - keep
