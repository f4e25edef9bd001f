"""After any operations in any order, a session's counters match its view, and the view is valid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contextstash.stash import Stash
from contextstash.view.view import parts_of, results_of
from contextstash.window.settings import PRESETS
from contextstash_storage.records import Native
from tests.support.conversations import FORMAT_NAMES, conversations
from tests.support.effort import examples
from tests.support.provider_rules import violations
from tests.support.stashes import SESSION, all_handles, as_bytes, history, stash_at

STEPS = ("prune", "oldest", "compact", "host", "restore", "restore summaries", "recover", "record")

TOO_LONG = "prompt is too long: 9000 tokens > 8000 maximum"


async def in_step(stash: Stash, format_name: str) -> None:
    """The counters, recounted; the messages to send, held against the provider's rules and the budget."""
    snapshot = await stash.snapshot(SESSION)
    counters = snapshot.session.counters
    assert counters.parts == {part: tokens for part, tokens in parts_of(snapshot.entries).items() if tokens}
    assert counters.view_messages == len(snapshot.entries)
    assert counters.view_results == results_of(snapshot.entries)
    for budget in (None, 300):
        answer = await stash.get_context(SESSION, budget=budget)
        assert violations(format_name, answer.messages) == []
        assert not answer.fits or answer.tokens <= answer.budget


async def take(stash: Stash, step: str, natives: Sequence[Native]) -> None:
    if step == "prune":
        await stash.prune_tool_outputs(SESSION, keep_last=1)
    elif step == "oldest":
        from contextstash.reduce.prune import prune_oldest

        await prune_oldest(stash, SESSION)
    elif step == "compact":
        result = await stash.compact_session(SESSION, strategy="extractive")
        assert result.compacted == (result.tokens_after < result.tokens_before)
    elif step == "host":
        await stash.compact_session(SESSION, summary="What was done so far, in the host's words.")
    elif step == "restore":
        if handles := await all_handles(stash):
            await stash.restore_outputs(handles[:2], session_id=SESSION)
    elif step == "restore summaries":
        snapshot = await stash.snapshot(SESSION)
        if names := [edit.summary_id for edit in snapshot.overlay.summaries]:
            await stash.restore_outputs(names[:1], session_id=SESSION)
    elif step == "recover":
        await stash.recover_context(SESSION, error=TOO_LONG)
    else:
        await stash.record_messages(natives, whole=True, session_id=SESSION)


@pytest.mark.parametrize("preset", ["default", "staged", "token-budget", "rolling", "n-or-k", "byte-budget"])
@pytest.mark.parametrize("format_name", FORMAT_NAMES)
@settings(max_examples=examples(12), suppress_health_check=list(HealthCheck))
@given(data=st.data())
async def test_after_every_step_counters_and_view_agree(
    format_name: str, preset: str, data: st.DataObject, preset_with: Callable[..., str]
) -> None:
    assert preset in PRESETS
    natives = data.draw(conversations(format_name, min_turns=3))
    steps = data.draw(st.lists(st.sampled_from(STEPS), max_size=7))
    model = data.draw(st.sampled_from(["claude-fable-5-1", "gpt-5.2", None]))
    options: dict[str, Any] = {
        "prune_at_results": 1,
        "compact_keep_messages": 1,
        "compact_keep_tokens": 50,
    }
    middle = max(1, 2 * len(natives) // 3)
    with TemporaryDirectory() as folder:
        async with stash_at(
            Path(folder) / "s.db", preset=preset_with(preset, prune_smallest_tokens=0), window=4_000, **options
        ) as stash:
            await stash.record_messages(
                natives[:middle], whole=True, session_id=SESSION, format=format_name, model=model
            )
            await in_step(stash, format_name)
            for step in steps:
                await take(stash, step, natives)
                await in_step(stash, format_name)
            await stash.record_messages(natives, whole=True, session_id=SESSION)
            await in_step(stash, format_name)
            assert as_bytes(await history(stash)) == as_bytes(natives)
