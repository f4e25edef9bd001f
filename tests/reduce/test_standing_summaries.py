"""Summaries that stand beside each other in a view: each covers what is new, until one takes the place of all."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextstash.safety.sanitize import USER_BLOCK
from contextstash.stash import Stash
from contextstash.view import compaction_plan
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
    snapshot = await stash.snapshot(SESSION)
    return [entry.summary for entry in snapshot.entries if entry.summary]


async def test_a_new_summary_stands_beside_the_last_one(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "n.db", window=60_000, compact_keep_tokens=0) as stash:
        await compacted_chapters(stash, 3)
        found = await visible_summaries(stash)
        shown = await view(stash)
    assert [edit.first_seq for edit in found[1:]] == [edit.last_seq + 1 for edit in found[:-1]]
    after_words = [text for message in shown if not (text := str(message["content"])).startswith(USER_BLOCK)]
    assert [f"Part {number} is done" in after_words[number] for number in range(3)] == [True] * 3


async def test_once_they_pass_their_share_the_next_summary_takes_the_place_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction_plan, "SUMMARIES_SHARE", 0.04)
    async with stash_at(tmp_path / "m.db", window=20_000, compact_keep_tokens=0) as stash:
        natives = await compacted_chapters(stash, 8)
        found, *later = await visible_summaries(stash)
        assert found.first_seq == 0
        assert len(later) < 6
        assert as_bytes(await history(stash)) == as_bytes(natives)
        restored = await stash.restore_outputs([found.summary_id], session_id=SESSION)
        assert restored.restored
        await valid_view(stash, "openai-chat")
