"""The timeline of a session: what it shows, and that its effort grows with the session alone."""

from __future__ import annotations

import anyio

from contextstash.stash import Stash
from contextstash_storage.records import Block, NewMessage
from tests.support.stored_sessions import new_session, record

PAIRS = 5_000


async def test_a_message_with_thousands_of_tool_outputs_is_shown_without_reading_it_once_for_each(
    stash: Stash,
) -> None:
    calls = [{"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": {}} for number in range(PAIRS)]
    results = [{"type": "tool_result", "tool_use_id": f"t{number}", "content": "done"} for number in range(PAIRS)]
    messages = [{"role": "assistant", "content": calls}, {"role": "user", "content": results}]
    await stash.record_messages(messages, session_id="s")
    with anyio.fail_after(5):  # it took more than 10 s when each output had its message parsed again, now 0.1 s
        shown = await stash.timeline("s")
    estimate = await stash.estimate_context("s")
    assert sum(shown.points[-2].parts.values()) == sum(estimate.breakdown.values())


async def test_the_tokens_of_all_messages_that_the_model_saw_are_told_by_part(stash: Stash) -> None:
    thought = (Block(type="thinking", tokens=7, size=3), Block(type="text", size=9), Block(type="text", tokens=2))
    named = Block(type="tool_call", tokens=5, call_id='"tokens":9,"type":"text"', argument="\ud800")
    await new_session(stash.store, "s")
    await record(
        stash.store,
        NewMessage(body={"n": 0}, role="user", blocks=(Block(type="text", tokens=3),)),
        NewMessage(body={"n": 1}, role="assistant", blocks=thought),
        NewMessage(body={"n": 2}, role="assistant", blocks=(named,)),
        NewMessage(body={"n": 3}, role="user", kind="host", blocks=(Block(type="text", tokens=4),)),
        NewMessage(body={"n": 4}, role="user", blocks=(Block(type="text", tokens=100),), agent_visible=False),
        session_id="s",
    )
    shown = await stash.timeline("s")
    assert shown.points[-2].parts == {"user": 7, "thinking": 7, "assistant": 2, "tool_calls": 5}
