"""What recorded sessions would have cost in smaller windows."""

from __future__ import annotations

from typing import Any

from contextstash.stash import Stash
from tests.support.stashes import reply, user

MODEL = "claude-sonnet-4-5"
GROWTH = 2_000


async def record_calls(stash: Stash, session_id: str, calls: int, model: str = MODEL) -> None:
    """Record a session whose requests grow evenly, with the usage that the provider would report."""
    natives: list[dict[str, Any]] = []
    for number in range(calls):
        natives += [user(10), reply(10)]
        usage = {
            "input_tokens": 1,
            "cache_read_input_tokens": 20_000 + GROWTH * (number - 1) if number else 0,
            "cache_creation_input_tokens": GROWTH if number else 20_000,
            "output_tokens": 100,
        }
        await stash.record_messages(natives[-2:], session_id=session_id, first_seq=2 * number, model=model, usage=usage)


async def test_a_long_session_would_have_cost_less_in_a_smaller_window(stash: Stash) -> None:
    await record_calls(stash, "long", 90)
    advice = await stash.advise(await stash.recent_sessions())
    assert (advice.conversations, advice.left_out, advice.requests) == (1, 0, 90)
    assert all(window.dollars < advice.dollars for window in advice.windows)
    assert all(window.cost_percent and window.cost_percent < 100 for window in advice.windows)
    fewer = [window.more_compactions for window in advice.windows]
    assert fewer == sorted(fewer, reverse=True)
    assert fewer[-1] > 0
    lacking = [window.lacking_percent for window in advice.windows]
    assert lacking == sorted(lacking, key=lambda share: -share), "a smaller window holds less"


async def test_sessions_that_teach_nothing_are_left_out_and_counted(stash: Stash) -> None:
    await record_calls(stash, "short", 5)
    await record_calls(stash, "unpriced", 40, model="a-model-of-my-own")
    advice = await stash.advise(await stash.recent_sessions())
    assert (advice.conversations, advice.left_out, advice.dollars) == (0, 2, 0)
