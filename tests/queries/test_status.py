"""What a person is told of a session."""

from __future__ import annotations

from pathlib import Path

from tests.support.sized_sessions import reply, round_of
from tests.support.stashes import SESSION, stash_at


async def test_an_output_that_was_cut_when_it_was_recorded_is_told_as_kept_whole(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "s.db", window=200_000, estimator="chars", output_tokens=500) as stash:
        await stash.record_messages([*round_of(0, "log line\n" * 2_000), reply(40)], session_id=SESSION)
        status = await stash.context_status(SESSION)
    assert (status.outputs_archived, status.outputs_shortened) == (0, 1)
    assert "1 output cut when new, each kept whole by its handle." in status.in_words()
