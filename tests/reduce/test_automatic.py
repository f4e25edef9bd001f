"""Automatic reduction of a session: in the background if the summarizer is slow, despite failures, and in one step
from a full window down to the low-water mark."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path

import pytest

from contextstash.reduce.compact import only_one
from contextstash.stash import Stash
from contextstash_storage.records import Call, Event, Native
from tests.support.provider import SUMMARY, Said, Sent, model_provider, refused
from tests.support.stashes import (
    SESSION,
    as_bytes,
    before,
    called,
    history,
    reply,
    rounds,
    stash_at,
    user,
    valid_view,
    view,
)

KEY = "sk-ant-test"


def long_session(messages: int = 20) -> list[Native]:
    """A session of about 1,000 tokens a message."""
    return [(user, reply)[place % 2](4_000 + place) for place in range(messages)]


async def kinds_of_events(stash: Stash) -> list[str]:
    return [event.kind for event in await stash.store.read_log(SESSION, Event)]


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
            dry = await stash.compact_session(SESSION, dry_run=True)
            assert "would write the summary" in str(dry.note)
            assert len(provider.requests) <= 1  # that of the compaction in the background
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
            calls = await stash.store.read_log(SESSION, Call)
    assert any("written by extractive" in line for line in done)
    assert any("anthropic could not write the summary" in line for line in done)
    assert {call.purpose for call in calls} == {"summary"}
    assert all(call.error or down == Said("") for call in calls)


async def test_nothing_is_pruned_while_another_process_compacts(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "p.db", automatic=True, window=16_000) as stash:
        await stash.record_messages([user(40)], session_id=SESSION)
        async with only_one(stash, SESSION):
            await stash.record_messages(rounds([4_000] * 20), session_id=SESSION)
        assert await kinds_of_events(stash) == []
        assert (await stash.record_messages([user(40)] * 20, session_id=SESSION)).done


async def test_a_compaction_that_saves_too_little_is_not_tried_at_every_message(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "o.db", automatic=True, window=4_000, estimator="chars") as stash:
        await stash.record_messages([user(12_000), reply(200)], session_id=SESSION)
        for number in range(30):
            await stash.record_messages([user(40 + number), reply(40)], session_id=SESSION)
        events = await stash.store.read_log(SESSION, Event)
    assert sum(event.kind == "compaction" for event in events) <= 3


async def test_a_bug_of_ours_is_logged_with_its_line_but_without_its_message(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken() -> None:
        raise KeyError("the user's secret words")

    async with stash_at(tmp_path / "l.db", automatic=True, window=16_000, estimator="chars") as stash:
        before(stash, "change_session", broken)
        with caplog.at_level(logging.ERROR):
            answer = await stash.record_messages(long_session(), session_id=SESSION)
    assert answer.recorded == len(long_session())
    [record] = caplog.records
    assert "broke off: KeyError at contextstash.session.edit:" in record.getMessage()
    assert " in _carry_out <- contextstash.session.edit:" in record.getMessage()
    assert "secret" not in caplog.text


WINDOW = 16_000


def step(number: int) -> list[Native]:
    """A call and its output, in which a file defines a function of its own."""
    path = f"/srv/app/part_{number}.py"
    text = "\n".join(f"def handle_part_{number}(order_{line}): ...  # step {line} of the work" for line in range(25))
    return called(number, "read", {"path": path}, text, f"Reading part {number}.")


async def test_a_full_window_is_reduced_once_to_the_mark_and_then_only_grows(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "s.db", automatic=True, window=WINDOW, output_reserve=0) as stash:
        await stash.record_messages([{"role": "user", "content": "Read all parts."}], session_id=SESSION)
        views: list[list[Native]] = []
        fills: list[float] = []
        reduced: list[int] = []
        for number in range(70):
            recorded = await stash.record_messages(step(number), session_id=SESSION)
            context = await stash.get_context(SESSION)
            views.append(context.messages)
            fills.append(context.tokens / WINDOW)
            if recorded.done:
                reduced.append(number)
        summary = await stash.get_summary(SESSION)
    assert len(reduced) >= 2
    assert max(fills) <= 0.92
    assert all(0.25 < fills[number] <= 0.44 for number in reduced)
    for former, (number, after) in zip(views, list(enumerate(views))[1:], strict=False):
        assert number in reduced or after[: len(former)] == former
    shown = str(views[reduced[-1]])
    assert "archived output of read" in shown
    assert "## Names in use" in summary.summary
    assert "handle_part_" in summary.summary
