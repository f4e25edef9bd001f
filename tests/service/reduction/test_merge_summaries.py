"""Tiers of summaries: recent ones in detail, older ones merged; each can be restored to its messages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contextstash.context.text.sanitize import USER_BLOCK
from contextstash.service.stash import Stash
from contextstash_storage.errors import BadInputError, NotFoundError
from contextstash_storage.records import Native, SummaryEdit
from tests.support.sized_sessions import reply, user
from tests.support.stashes import SESSION, as_bytes, history, stash_at, valid_view, view


def chapter(number: int) -> list[Native]:
    """Ten messages of about 500 tokens each, on a topic of their own."""
    natives = [{"role": "user", "content": f"Now do part {number}: never touch module_{number}.py."}]
    for place in range(9):
        natives.append((reply, user)[place % 2](2_000 + 10 * number + place))
    return natives


async def compacted_chapters(stash: Stash, chapters: int) -> list[Native]:
    natives: list[Native] = []
    for number in range(chapters):
        natives += chapter(number)
        await stash.record_messages(natives, whole=True, session_id=SESSION)
        summary = f"Part {number} is done: " + f"detail {number} " * 40
        assert (await stash.compact_session(SESSION, summary=summary)).compacted
        await valid_view(stash, "openai-chat")
    return natives


async def visible_summaries(stash: Stash) -> list[SummaryEdit]:
    snapshot = await stash._access.snapshot(SESSION)
    return [entry.summary for entry in snapshot.entries if entry.summary]


async def test_a_new_summary_stands_beside_the_last_one(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "n.db", window=60_000, compact_keep_tokens=0) as stash:
        await compacted_chapters(stash, 3)
        found = await visible_summaries(stash)
        shown = await view(stash)
    assert [edit.level for edit in found] == ["recent"] * 3
    assert [edit.first_seq for edit in found[1:]] == [edit.last_seq + 1 for edit in found[:-1]]
    after_words = [text for message in shown if not (text := str(message["content"])).startswith(USER_BLOCK)]
    assert [f"Part {number} is done" in after_words[number] for number in range(3)] == [True] * 3


async def test_older_summaries_are_merged_once_they_pass_their_share(
    tmp_path: Path, preset_with: Callable[..., str]
) -> None:
    settings: dict[str, Any] = {"window": 20_000, "compact_keep_tokens": 0, "preset": preset_with(summaries_share=0.04)}
    async with stash_at(tmp_path / "m.db", **settings) as stash:
        natives = await compacted_chapters(stash, 8)
        found = await visible_summaries(stash)
        max_tokens = int((await stash.estimate_context(SESSION)).usable * 0.04)
        assert found[-1].level == "recent"
        assert {edit.level for edit in found} & {"medium", "long"}
        assert sum(edit.tokens for edit in found[:-1]) <= max_tokens
        assert (found[0].first_seq, found[-1].last_seq) == (0, len(natives) - 5)
        assert as_bytes(await history(stash)) == as_bytes(natives)


async def test_a_merged_summary_names_the_summaries_it_merges_and_each_can_be_read(
    tmp_path: Path, preset_with: Callable[..., str]
) -> None:
    settings: dict[str, Any] = {"window": 20_000, "compact_keep_tokens": 0, "preset": preset_with(summaries_share=0.04)}
    async with stash_at(tmp_path / "o.db", **settings) as stash:
        await compacted_chapters(stash, 4)
        merged = await stash.get_summary(SESSION, level="medium")
        assert merged.merges
        parts = [await stash.get_summary(SESSION, level=summary_id) for summary_id in merged.merges]
        assert (parts[0].first_seq, parts[-1].last_seq) == (merged.first_seq, merged.last_seq)
        assert "Part 0 is done" in parts[0].summary
        newest = await stash.get_summary(SESSION, level="recent")
        assert newest.summary.startswith("Part 3 is done")
        whole = await stash.get_summary(SESSION)
        assert (whole.first_seq, whole.last_seq) == (merged.first_seq, newest.last_seq)
        assert whole.summary.index(merged.summary) < whole.summary.index(newest.summary)
        with pytest.raises(NotFoundError):
            await stash.get_summary(SESSION, level="long")
        with pytest.raises(BadInputError, match="recent, medium, long"):
            await stash.get_summary(SESSION, level="huge")


async def test_restoring_a_merged_summary_brings_back_the_summaries_it_merges(
    tmp_path: Path, preset_with: Callable[..., str]
) -> None:
    settings: dict[str, Any] = {"window": 20_000, "compact_keep_tokens": 0, "preset": preset_with(summaries_share=0.04)}
    async with stash_at(tmp_path / "r.db", **settings) as stash:
        await compacted_chapters(stash, 4)
        merged = await stash.get_summary(SESSION, level="medium")
        assert merged.merges
        await stash.restore_outputs([merged.summary_id], session_id=SESSION)
        assert [edit.summary_id for edit in await visible_summaries(stash)][: len(merged.merges)] == merged.merges
        while handles := [edit.summary_id for edit in await visible_summaries(stash)]:
            await stash.restore_outputs(handles, session_id=SESSION)
        assert as_bytes(await view(stash, budget=100_000)) == as_bytes(await history(stash))


async def test_the_parent_designs_keep_one_summary_of_everything(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "p.db", preset="token-budget") as stash:
        await compacted_chapters(stash, 3)
        [only] = await visible_summaries(stash)
    assert only.first_seq == 0
