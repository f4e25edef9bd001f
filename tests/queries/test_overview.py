"""The overview of all sessions: what their calls took, by day and model."""

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
    assert saved.tokens_without - saved.tokens_billed == pruned.tokens_saved
    [day], [model] = found.days, found.models
    assert model.name == MODEL
    assert (day.calls, day.prompt_tokens) == (model.calls, model.prompt_tokens) == (2, 10_000)
    assert day.cost == pytest.approx(2 * (5_000 * INPUT_PRICE + 10 * OUTPUT_PRICE), rel=0.01)
