"""The timeline of a session: what it shows, and that its effort grows with the session alone."""

from __future__ import annotations

from contextstash.stash import Stash
from contextstash_storage.records import Block, NewMessage
from tests.support.stored_sessions import new_session, record

PAIRS = 5_000


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
