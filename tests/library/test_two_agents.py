"""Two agents on one session id at the same time: an error that says so, never the other's messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contextstash import open_stash
from contextstash_storage.errors import BadInputError

Messages = list[dict[str, Any]]


def asked(text: str) -> Messages:
    return [{"role": "user", "content": text}]


def answer(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


async def test_a_request_behind_another_agents_is_an_error_and_the_others_session_goes_on(tmp_path: Path) -> None:
    async with open_stash(tmp_path / "s.db") as stash:
        one, other = (stash.session("job", model="gpt-5.4", window=32_000) for _ in range(2))
        mine, theirs = asked("Fix the build."), asked("Write the docs.")
        await one.request(mine)
        mine += await one.reply(answer("The build is fixed."))
        await other.request(theirs)
        with pytest.raises(BadInputError, match=r"Another agent records in session 'job' at the same time.*own"):
            await one.request([*mine, *asked("Thanks.")])
        theirs += await other.reply(answer("The docs are written."))
        request = await other.request([*theirs, *asked("Again.")])
    assert [message["content"] for message in request.messages] == [
        "Write the docs.", "The docs are written.", "Again."
    ]  # fmt: skip


async def test_a_reply_is_not_recorded_in_another_agents_conversation(tmp_path: Path) -> None:
    async with open_stash(tmp_path / "s.db") as stash:
        one, other = (stash.session("job", model="gpt-5.4", window=32_000) for _ in range(2))
        await one.request(asked("Fix the build."))
        await other.request(asked("Write the docs."))
        with pytest.raises(BadInputError, match="at the same time"):
            await one.reply(answer("The build is fixed."))
        assert "build" not in str(await other.messages())


async def test_agents_that_hand_one_conversation_on_and_a_program_that_starts_again_are_fine(tmp_path: Path) -> None:
    async with open_stash(tmp_path / "s.db") as stash:
        planner, worker = (stash.session("job", model="gpt-5.4", window=32_000) for _ in range(2))
        messages = asked("Fix the build.")
        for agent in (planner, worker, planner):
            await agent.request(messages)
            messages += [*await agent.reply(answer(f"Step {len(messages)}.")), *asked("Go on.")]
        again = stash.session("job", model="gpt-5.4", window=32_000)
        assert len((await again.request(asked("Something else."))).messages) == 1
