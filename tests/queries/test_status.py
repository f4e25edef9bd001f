"""What a person is told of a session."""

from __future__ import annotations

from pathlib import Path

from contextstash.stash import Stash
from contextstash_storage.records import Block, NewMessage
from tests.support.stashes import SESSION, reply, round_of, stash_at
from tests.support.stored_sessions import new_session, record


async def test_an_output_that_was_cut_when_it_was_recorded_is_told_as_kept_whole(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "s.db", window=200_000, estimator="chars", output_tokens=500) as stash:
        await stash.record_messages([*round_of(0, "log line\n" * 2_000), reply(40)], session_id=SESSION)
        status = await stash.context_status(SESSION)
    assert (status.outputs_archived, status.outputs_shortened) == (0, 1)
    assert "1 output cut when new, each kept whole by its handle." in status.in_words()


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
