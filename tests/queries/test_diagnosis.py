"""If the window fills up again after a compaction, the estimate names what filled it."""

from __future__ import annotations

from pathlib import Path

from tests.support.sized_sessions import reply, round_of, user
from tests.support.stashes import SESSION, stash_at


async def test_the_part_and_the_output_that_refilled_it_are_named(tmp_path: Path) -> None:
    natives = [user(8_000), reply(8_000)] * 5
    async with stash_at(tmp_path / "r.db", window=20_000, estimator="chars", output_tokens=None) as stash:
        await stash.record_messages(natives, whole=True, session_id=SESSION)
        assert (await stash.compact_session(SESSION, strategy="extractive")).compacted
        assert (await stash.estimate_context(SESSION)).notes is None
        await stash.record_messages([*natives, *round_of(1, "log line\n" * 6_000)], whole=True, session_id=SESSION)
        estimate = await stash.estimate_context(SESSION)
        [output] = await stash.store.read_outputs(SESSION)
    assert estimate.level != "ok"
    [note] = estimate.notes or []
    assert "tool results" in note
    assert output.handle in note


async def test_what_no_compaction_can_shrink_is_named_as_such(tmp_path: Path) -> None:
    natives = [user(8_000), reply(8_000)] * 5
    async with stash_at(tmp_path / "u.db", window=30_000, estimator="chars") as stash:
        await stash.record_messages(natives, whole=True, session_id=SESSION)
        await stash.compact_session(SESSION, strategy="extractive")
        usage = {"input_tokens": 26_000, "output_tokens": 50}
        await stash.record_messages([*natives, user(40), reply(40)], whole=True, session_id=SESSION, usage=usage)
        estimate = await stash.estimate_context(SESSION)
    assert "other unlogged text" in " ".join(estimate.notes or [])


async def test_the_estimate_warns_if_a_client_does_not_send_the_pruned_view(tmp_path: Path) -> None:
    natives = [user(800), reply(15_200)] * 5
    async with stash_at(tmp_path / "i.db", window=30_000, estimator="chars") as stash:
        await stash.record_messages(natives, whole=True, session_id=SESSION)
        await stash.compact_session(SESSION, strategy="extractive")
        usage = {"input_tokens": 26_000, "output_tokens": 50}
        await stash.record_messages([*natives, user(40), reply(40)], whole=True, session_id=SESSION, usage=usage)
        estimate = await stash.estimate_context(SESSION)
    assert "does not send what get_context returns" in (estimate.notes or [""])[0]
