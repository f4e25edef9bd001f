"""Edit conflicts while a model writes: its text is reused, and not paid for again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from contextstash.reduce.prune import prune_oldest
from contextstash.stash import Stash
from tests.support.gated_store import before
from tests.support.model_provider import Answer, model_provider
from tests.support.sized_sessions import reply, rounds, user
from tests.support.stashes import SESSION, all_handles, stash_at, valid_view

DIGEST = "The build passed, and nothing was left to do in this part."


def in_turn(*acts: Callable[[], Awaitable[Any]]) -> Callable[[], Awaitable[None]]:
    """A function that does the first at its first call, the second at its second call, and then nothing."""
    waiting = list(acts)

    async def next_one() -> None:
        if waiting:
            await waiting.pop(0)()

    return next_one


async def digests_in(stash: Stash) -> int:
    return sum("digest of bash" in str(native["content"]) for native in await valid_view(stash, "openai-chat"))


async def test_after_two_conflicts_each_archived_output_was_digested_by_one_call(tmp_path: Path) -> None:
    natives = [user(40), *rounds([3_000] * 16), reply(40)]
    path = tmp_path / "d.db"
    with model_provider(Answer(text=DIGEST)) as provider:
        settings: dict[str, Any] = {"preset": "rolling", "summarizer_base_url": provider.url, "window": 400_000}
        async with stash_at(path, api_key="k", **settings) as stash, stash_at(path) as other:
            await stash.record_messages(natives, session_id=SESSION)
            await stash.prune_tool_outputs(SESSION, keep_last=14)
            oldest = (await all_handles(stash))[:2]
            restorings = [
                lambda handle=handle: other.restore_outputs([handle], session_id=SESSION) for handle in oldest
            ]
            before(stash, "append_edits", in_turn(*restorings))
            pruned = await prune_oldest(stash, SESSION)
            shown = await digests_in(stash)
            calls = (await stash.list_calls(SESSION)).calls
    assert len(pruned.archived) == shown == 6
    assert len(provider.requests) == len(calls) == 6


async def test_a_model_that_is_down_is_not_asked_again_after_a_conflict(tmp_path: Path) -> None:
    natives = [user(40), *rounds([3_000] * 13), reply(40)]
    path = tmp_path / "e.db"
    down = Answer(status=401, error="authentication_error")
    with model_provider(down) as provider:
        settings: dict[str, Any] = {"preset": "rolling", "summarizer_base_url": provider.url, "window": 400_000}
        async with stash_at(path, api_key="k", **settings) as stash, stash_at(path) as other:
            await stash.record_messages(natives, session_id=SESSION)
            await stash.prune_tool_outputs(SESSION, keep_last=12)
            oldest = (await all_handles(stash))[0]
            before(stash, "append_edits", in_turn(lambda: other.restore_outputs([oldest], session_id=SESSION)))
            pruned = await prune_oldest(stash, SESSION)
            shown = await digests_in(stash)
    assert len(pruned.archived) == shown == len(provider.requests) == 3
