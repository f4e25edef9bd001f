"""Automatic reduction during concurrent recordings and closing: one task for each session, and none left at the end."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from contextstash.reduce.automatic import STARTED
from tests.support.gated_store import before
from tests.support.model_provider import Answer, model_provider
from tests.support.sized_sessions import reply, user
from tests.support.stashes import SESSION, stash_at

KEY = "sk-ant-test"
LONG = [(user, reply)[place % 2](4_000 + place) for place in range(20)]


def slow_settings(url: str) -> dict[str, Any]:
    return {"window": 16_000, "estimator": "chars", "summarizer_base_url": url, "automatic": True}


async def others() -> set[asyncio.Task[Any]]:
    return asyncio.all_tasks() - {asyncio.current_task()}


async def test_two_concurrent_recordings_start_one_background_task_and_closing_ends_it(tmp_path: Path) -> None:
    with model_provider(Answer(waits_for=threading.Event())) as provider:
        async with stash_at(tmp_path / "c.db", api_key=KEY, **slow_settings(provider.url)) as stash:
            begun_before = await others()
            recordings = (LONG, [*LONG, user(4_000)])
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
            answer = await stash.record_messages(LONG, session_id=SESSION)
    assert answer.recorded == len(LONG)
    [record] = caplog.records
    assert "broke off: KeyError at session/" in record.getMessage()
    assert " in _carry_out <- session/" in record.getMessage()
    assert "secret" not in caplog.text
