"""The timeline of a session: what it shows, and that its effort grows with the session alone."""

from __future__ import annotations

from pathlib import Path

import anyio

from tests.support.stashes import stash_at

PAIRS = 5_000


async def test_a_message_with_thousands_of_tool_outputs_is_shown_without_reading_it_once_for_each(
    tmp_path: Path,
) -> None:
    calls = [{"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": {}} for number in range(PAIRS)]
    results = [{"type": "tool_result", "tool_use_id": f"t{number}", "content": "done"} for number in range(PAIRS)]
    messages = [{"role": "assistant", "content": calls}, {"role": "user", "content": results}]
    async with stash_at(tmp_path / "s.db") as stash:
        await stash.record_messages(messages, session_id="s")
        with anyio.fail_after(5):  # it took more than 10 s when each output had its message parsed again, now 0.1 s
            shown = await stash.timeline("s")
        estimate = await stash.estimate_context("s")
    assert sum(shown.points[-2].parts.values()) == sum(estimate.breakdown.values())
