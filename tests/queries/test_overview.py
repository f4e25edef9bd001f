"""The overview of all sessions: what was saved, by tool and day, and what the calls cost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.sized_sessions import reply, round_of, user
from tests.support.stashes import SESSION, stash_at

MODEL = "claude-sonnet-4-5"
INPUT_PRICE = 3 / 1_000_000
OUTPUT_PRICE = 15 / 1_000_000
"""US dollars for a token of that model."""


async def test_the_overview_sums_what_was_saved_sent_and_spent(tmp_path: Path) -> None:
    natives = [message for number in range(8) for message in round_of(number, "log line\n" * 2_000)]
    usage = {"input_tokens": 5_000, "output_tokens": 10}
    async with stash_at(tmp_path / "s.db", window=200_000, estimator="chars") as stash:
        await stash.record_messages(natives, whole=True, session_id=SESSION, model=MODEL, usage=usage)
        pruned = await stash.prune_tool_outputs(SESSION, keep_last=2)
        natives += [user(40), reply(40)]
        await stash.record_messages(natives, whole=True, session_id=SESSION, model=MODEL, usage=usage)
        await stash.record_messages([user(400)], session_id="small")
        found = await stash.overview()
        saved = await stash.receipt()
        use = await stash.session_use(SESSION)
    assert (found.sessions, found.messages, found.outputs, found.calls) == (2, 19, 8, 2)
    assert saved.tokens_without - saved.tokens_billed == pruned.tokens_saved
    assert found.cost == pytest.approx(2 * (5_000 * INPUT_PRICE + 10 * OUTPUT_PRICE), rel=0.01)
    assert [(tool.tool, tool.outputs) for tool in found.tools] == [("bash", 8)]
    assert [day.calls for day in found.days] == [2]
    assert [(call.prompt_tokens, call.completion_tokens) for call in use.calls] == [(5_000, 10), (5_000, 10)]


async def test_an_empty_stash_has_an_overview(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "e.db") as stash:
        found = await stash.overview()
    assert (found.sessions, found.calls, found.cost, found.days) == (0, 0, None, [])


async def test_the_call_of_an_output_is_found_with_its_arguments(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "c.db") as stash:
        natives = [*round_of(0, "first output " * 50), *round_of(1, "second output " * 50, argument="src/main.py")]
        await stash.record_messages(natives, session_id=SESSION)
        [hit] = (await stash.search_history("second output", session_id=SESSION, limit=1)).hits
        assert hit.handle
        call = await stash.read_call(hit.handle)
    assert call
    assert (call.seq, call.tool, call.arguments) == (2, "bash", '{"path":"src/main.py"}')
