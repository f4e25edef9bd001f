"""In each preset the first request is at the head of a view that was compacted."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextstash.stash import Stash
from contextstash.window.settings import PRESETS
from contextstash_storage.sqlite import open_sqlite
from tests.reduce.test_summaries import TASK, plain, step


@pytest.mark.parametrize("preset", sorted(PRESETS))
async def test_the_task_is_at_the_head_of_a_compacted_view(preset: str, tmp_path: Path) -> None:
    async with Stash(await open_sqlite(tmp_path / "s.db"), settings={"preset": preset, "window": 16_000}) as stash:
        await stash.record_messages([{"role": "user", "content": TASK}], session_id="s", format="openai-chat")
        for number in range(40):
            await stash.record_messages(step(number), session_id="s")
        result = await stash.compact_session("s")
        assert result.compacted, result.reason
        first = (await stash.read_context("s")).messages[0]
        assert "To submit, run\necho COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT" in plain(str(first["content"]))
