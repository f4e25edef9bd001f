"""`contextstash delete`: deleting a session, after a confirmation."""

from __future__ import annotations

import asyncio

from tests.support.command_line import CommandLine, Orchard, failure_of
from tests.support.stashes import stash_at


def test_a_session_is_deleted_only_if_that_is_confirmed(orchard: Orchard) -> None:
    assert "--yes" in failure_of(orchard.run("delete", orchard.session, typed="n\n"))
    assert orchard.json("status")["session_id"] == orchard.session
    assert orchard.json("delete", orchard.session, "--yes")["deleted"] is True
    assert "no session" in failure_of(orchard.run("status"))


def test_the_sessions_of_its_sub_agents_go_with_it(contextstash: CommandLine) -> None:
    """They are rows below it in the list: whoever deletes it must not find them there alone afterwards."""

    async def record() -> None:
        async with stash_at(contextstash.database) as stash:
            for name, parent in (("main", None), ("main.agent-1", "main"), ("fork", "main")):
                said = [{"role": "user", "content": f"zebra of {name}"}]
                await stash.record_messages(said, session_id=name, parent_session_id=parent)

    asyncio.run(record())
    assert contextstash.run("delete", "main", "--yes").stdout == (
        "Session main is deleted, 1 message with it, and 1 session of its sub-agents.\n"
    )
    assert [hit["session_id"] for hit in contextstash.json("search", "zebra")["hits"]] == ["fork"]
