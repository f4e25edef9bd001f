"""Work in the background is waited for, and its failure is logged."""

from __future__ import annotations

import asyncio

import pytest

from contextstash.proxy.engine import BackgroundTasks


async def test_idle_waits_for_all_work_also_for_what_it_starts() -> None:
    done: list[str] = []
    tasks = BackgroundTasks("recording")

    async def first() -> None:
        await asyncio.sleep(0)
        tasks.start(second())
        done.append("first")

    async def second() -> None:
        await asyncio.sleep(0)
        done.append("second")

    tasks.start(first())
    await tasks.idle()
    assert done == ["first", "second"]


async def test_a_failure_is_logged_by_its_kind_without_its_text(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise ValueError("secret")

    tasks = BackgroundTasks("recording")
    tasks.start(fail())
    await tasks.idle()
    assert "recording failed: ValueError" in caplog.text
    assert "secret" not in caplog.text
