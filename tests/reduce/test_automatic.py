"""Automatic reduction of a session: in the background if the summarizer is slow, and despite failures."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from contextstash.reduce.automatic import STARTED
from contextstash.stash import Stash
from contextstash_storage.records import Native
from tests.support.provider import SUMMARY, Said, Sent, model_provider, refused
from tests.support.stashes import SESSION, as_bytes, before, history, reply, rounds, stash_at, user, valid_view, view

KEY = "sk-ant-test"


def long_session(messages: int = 20) -> list[Native]:
    """A session of about 1,000 tokens a message."""
    return [(user, reply)[place % 2](4_000 + place) for place in range(messages)]


async def kinds_of_events(stash: Stash) -> list[str]:
    return [event.kind for event in await stash.read_events(SESSION)]


async def test_200_messages_are_recorded_while_a_slow_summarizer_writes(tmp_path: Path) -> None:
    slow = Said(SUMMARY, waits_for=threading.Event())
    with model_provider(slow) as provider:
        settings = {"window": 16_000, "estimator": "chars", "summarizer_base_url": provider.url}
        async with stash_at(tmp_path / "b.db", api_key=KEY, automatic=True, **settings) as stash:
            answer = await stash.record_messages(long_session(), session_id=SESSION)
            assert answer.done == ["A compaction was started in the background."]
            await asyncio.to_thread(provider.asked.wait, 30)
            for number in range(200):
                recorded = await stash.record_messages([user(40 + number)], session_id=SESSION)
                assert recorded.recorded == 1
                assert "compaction" not in await kinds_of_events(stash)
            fitted = await stash.get_context(SESSION)
            assert fitted.fits
            assert not any(SUMMARY in str(native) for native in fitted.messages)
            assert slow.waits_for is not None
            slow.waits_for.set()
            await stash.idle()
            assert "compaction" in await kinds_of_events(stash)
            later = await stash.record_messages([user(9_000)], session_id=SESSION)
            shown = await valid_view(stash, "openai-chat")
    assert any(SUMMARY in str(native["content"]) for native in shown)
    assert any("written by anthropic" in line for line in later.done)
    assert len(provider.requests) == 1


async def test_closing_the_stash_during_a_compaction_leaves_the_view_unchanged(tmp_path: Path) -> None:
    natives = long_session()
    with model_provider(Said(SUMMARY, waits_for=threading.Event())) as provider:
        settings = {"window": 16_000, "summarizer_base_url": provider.url, "estimator": "chars"}
        async with stash_at(tmp_path / "c.db", api_key=KEY, automatic=True, **settings) as stash:
            await stash.record_messages(natives, whole=True, session_id=SESSION)
            await asyncio.sleep(0)
        async with stash_at(tmp_path / "c.db", window=200_000) as stash:
            assert as_bytes(await view(stash)) == as_bytes(natives)
            assert (await stash.compact_session(SESSION)).compacted


@pytest.mark.parametrize(
    "down",
    [
        refused("anthropic", "told to fail", 529, "overloaded_error", {"x-should-retry": "false"}),
        refused("anthropic", "told to fail", 401, "authentication_error"),
        Said(SUMMARY, breaks_off=True),
        Said(""),
    ],
    ids=["overloaded", "wrong key", "breaks off", "says nothing"],
)
async def test_every_view_is_valid_and_within_budget_if_the_summarizer_is_down_for_the_whole_session(
    tmp_path: Path, down: Said | Sent
) -> None:
    natives = [user(400), reply(40), *rounds([2_000] * 59), *long_session(30)]
    with model_provider(down) as provider:
        settings = {"window": 16_000, "summarizer_base_url": provider.url}
        async with stash_at(tmp_path / "d.db", api_key=KEY, automatic=True, **settings) as stash:
            done = []
            for end in range(10, len(natives) + 1, 10):
                done += (await stash.record_messages(natives[:end], whole=True, session_id=SESSION)).done
                await valid_view(stash, "openai-chat")
                assert (await stash.get_context(SESSION)).fits
                await stash.idle()
                await valid_view(stash, "openai-chat")
            assert as_bytes(await history(stash)) == as_bytes(natives)
            calls = (await stash.list_calls(SESSION)).calls
    assert any("written by extractive" in line for line in done)
    assert any("anthropic could not write the summary" in line for line in done)
    assert {call.purpose for call in calls} == {"summary"}
    assert all(call.error or down == Said("") for call in calls)


async def test_a_compaction_that_saves_too_little_is_not_tried_at_every_message(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "o.db", automatic=True, window=4_000, estimator="chars") as stash:
        await stash.record_messages([user(12_000), reply(200)], session_id=SESSION)
        for number in range(30):
            await stash.record_messages([user(40 + number), reply(40)], session_id=SESSION)
        events = await stash.read_events(SESSION)
    assert sum(event.kind == "compaction" for event in events) <= 3


def slow_settings(url: str) -> dict[str, Any]:
    return {"window": 16_000, "estimator": "chars", "summarizer_base_url": url, "automatic": True}


async def others() -> set[asyncio.Task[Any]]:
    return asyncio.all_tasks() - {asyncio.current_task()}


async def test_two_concurrent_recordings_start_one_background_task_and_closing_ends_it(tmp_path: Path) -> None:
    with model_provider(Said(SUMMARY, waits_for=threading.Event())) as provider:
        async with stash_at(tmp_path / "c.db", api_key=KEY, **slow_settings(provider.url)) as stash:
            begun_before = await others()
            recordings = (long_session(), [*long_session(), user(4_000)])
            answers = await asyncio.gather(
                *(stash.record_messages(natives, session_id=SESSION) for natives in recordings)
            )
            assert len(await others() - begun_before) == 1
            await stash.close()
            assert await others() - begun_before == set()
    assert [line for answer in answers for line in answer.done] == [STARTED]


async def test_a_bug_of_ours_is_logged_with_its_line_but_without_its_message(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken() -> None:
        raise KeyError("the user's secret words")

    async with stash_at(tmp_path / "l.db", automatic=True, window=16_000, estimator="chars") as stash:
        before(stash, "append_edits", broken)
        with caplog.at_level(logging.ERROR):
            answer = await stash.record_messages(long_session(), session_id=SESSION)
    assert answer.recorded == len(long_session())
    [record] = caplog.records
    assert "broke off: KeyError at contextstash.session.edit:" in record.getMessage()
    assert " in _carry_out <- contextstash.session.edit:" in record.getMessage()
    assert "secret" not in caplog.text
