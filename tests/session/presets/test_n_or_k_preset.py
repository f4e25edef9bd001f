"""The preset `n-or-k` by its numbers: 30 messages or 128,000 tokens, whichever first; 6 recent; 30 %; 4,096."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextstash.tokenizer import count_with
from contextstash_storage.records import Native
from tests.support.stashes import SESSION, reply, stash_at, user, valid_view

count = count_with("cl100k_base")

WORD = " word"


def said(words: int, role: str = "user") -> Native:
    """A message of so many tokens."""
    return {"role": role, "content": WORD * words}


@pytest.mark.parametrize(("messages", "summarized"), [(29, False), (30, True), (31, True)])
async def test_30_messages_since_the_last_summary_make_it_compact(
    tmp_path: Path, messages: int, summarized: bool
) -> None:
    natives = [said(40, ("user", "assistant")[place % 2]) for place in range(messages)]
    async with stash_at(tmp_path / "n.db", preset="n-or-k", automatic=True) as stash:
        answer = await stash.record_messages(natives, whole=True, session_id=SESSION)
        shown = await valid_view(stash, "openai-chat")
    assert any("Summarized" in line for line in answer.done) == summarized
    assert shown[-6:] == natives[-6:]
    assert len(shown) == (7 if summarized else messages)


async def test_the_count_starts_again_after_a_summary_and_excludes_system_messages(tmp_path: Path) -> None:
    natives = [{"role": "system", "content": "Be brief."}]
    natives += [said(40, ("user", "assistant")[place % 2]) for place in range(53)]
    async with stash_at(tmp_path / "a.db", preset="n-or-k", automatic=True) as stash:
        assert not (await stash.record_messages(natives[:30], whole=True, session_id=SESSION)).done
        assert (await stash.record_messages(natives[:31], whole=True, session_id=SESSION)).done
        trigger = (await stash.estimate_context(SESSION)).messages_trigger
        assert trigger is not None
        assert (trigger.value, trigger.threshold) == (6, 30)
        assert not (await stash.record_messages(natives[:54], whole=True, session_id=SESSION)).done
        assert (await stash.record_messages([*natives, said(9)], whole=True, session_id=SESSION)).done


@pytest.mark.parametrize(("tokens", "summarized"), [(127_999, False), (128_000, True), (128_001, True)])
async def test_128_000_tokens_make_it_compact(tmp_path: Path, tokens: int, summarized: bool) -> None:
    natives = [said(100, ("user", "assistant")[place % 2]) for place in range(12)]
    overhead = 3 + 4 * 13
    assert count(WORD * 100) == 100
    natives.insert(2, said(tokens - overhead - 1_200))
    async with stash_at(tmp_path / "k.db", preset="n-or-k", automatic=True, window=200_000) as stash:
        answer = await stash.record_messages(natives, whole=True, session_id=SESSION)
        assert bool(answer.done) == summarized
        if not summarized:
            assert answer.tokens == tokens


@pytest.mark.parametrize(("messages", "summarized"), [(9, False), (10, True)])
async def test_fewer_than_10_messages_are_never_summarized_by_themselves(
    tmp_path: Path, messages: int, summarized: bool
) -> None:
    natives = [said(1_000, ("user", "assistant")[place % 2]) for place in range(messages)]
    async with stash_at(tmp_path / "m.db", preset="n-or-k", automatic=True, tokens_at=5_000) as stash:
        assert bool((await stash.record_messages(natives, whole=True, session_id=SESSION)).done) == summarized


async def test_what_does_not_fit_is_left_out_oldest_first(tmp_path: Path) -> None:
    natives = [said(1_000, ("user", "assistant")[place % 2]) for place in range(12)]
    async with stash_at(tmp_path / "f.db", preset="n-or-k", window=12_096) as stash:
        await stash.record_messages(natives, whole=True, session_id=SESSION)
        answer = await stash.get_context(SESSION)
    assert answer.budget == 8_000
    assert answer.fits
    assert answer.left_out is not None
    assert (answer.left_out.first_seq, answer.left_out.messages) == (0, 5)
    assert answer.messages[-7:] == natives[-7:]


async def test_never_fewer_than_6_recent_messages_are_sent_and_the_answer_says_that_it_is_over(tmp_path: Path) -> None:
    natives = [said(1_000, ("user", "assistant")[place % 2]) for place in range(12)]
    async with stash_at(tmp_path / "r.db", preset="n-or-k", window=9_000) as stash:
        await stash.record_messages(natives, whole=True, session_id=SESSION)
        answer = await stash.get_context(SESSION)
    assert [native for native in answer.messages if native in natives] == natives[-6:]
    assert not answer.fits
    assert "must stay" in (answer.reason or "")


@pytest.mark.parametrize(("words", "used"), [(2_200, True), (2_500, False)])
async def test_a_summary_over_30_percent_of_the_room_is_not_used(tmp_path: Path, words: int, used: bool) -> None:
    natives = [said(1_500, ("user", "assistant")[place % 2]) for place in range(12)]
    async with stash_at(tmp_path / "s.db", preset="n-or-k", window=12_096) as stash:
        await stash.record_messages(natives, whole=True, session_id=SESSION)
        await stash.compact_session(SESSION, summary="Summary:" + WORD * words)
        shown = (await stash.get_context(SESSION)).messages
    assert any("Summary:" in native["content"] for native in shown) == used
    assert shown[-6:] == natives[-6:] or not used


async def test_it_counts_tokens_4_a_message_and_3(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "c.db", preset="n-or-k") as stash:
        await stash.record_messages([said(100), said(50, "assistant")], session_id=SESSION, model="gpt-4")
        assert (await stash.estimate_context(SESSION)).tokens == 100 + 50 + 2 * 4 + 3


async def test_it_never_prunes_automatically(tmp_path: Path) -> None:
    natives = [user(400), reply(400)] * 6
    async with stash_at(tmp_path / "q.db", preset="n-or-k", automatic=True, window=5_000) as stash:
        assert (await stash.record_messages(natives, whole=True, session_id=SESSION)).done == []
