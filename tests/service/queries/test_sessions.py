"""A session's own settings: what changes with them, and what does not."""

from __future__ import annotations

from pathlib import Path

from tests.support.sized_sessions import user
from tests.support.stashes import SESSION, stash_at


async def test_a_preset_changes_every_setting_that_it_names(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "p.db") as stash:
        await stash.record_messages([user(40)], session_id=SESSION)
        result = await stash.configure_session(SESSION, settings={"preset": "staged"})
    assert {"preset", "window", "estimator", "prune_keep_last", "compact_keep_tokens"} <= set(result.changed)
    assert result.settings["window"] == 180_000


async def test_changing_the_estimator_notes_that_recorded_messages_keep_their_count(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "n.db") as stash:
        await stash.record_messages([user(40)], session_id=SESSION)
        assert (await stash.configure_session(SESSION, settings={"window": 9_000})).note is None
        note = (await stash.configure_session(SESSION, settings={"preset": "rolling"})).note
    assert "The 1 messages recorded before" in (note or "")
    assert "estimator" in (note or "")
