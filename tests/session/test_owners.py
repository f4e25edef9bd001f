"""Another owner's stash on the same database: no method of the service shows or changes what is not its own."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from contextstash.stash import Stash
from contextstash_storage.errors import NotFoundError
from tests.support.stashes import SESSION, history, stash_at

CREATING = {"open_session", "record_messages", "import_session", "limit_output"}
"""They may name a session that does not exist yet: for another owner it is a new one."""

SECRET = "under the third oak"

NEEDED: dict[str, Any] = {
    "error": "prompt is too long: 210000 tokens > 200000 maximum",
    "call_id": 1,
    "handles": ["out_x"],
    "handle": "out_x",
    "query": "nest",
    "model": None,
}


def methods_of_a_session() -> list[str]:
    """The methods of the service that take a session's id."""
    members = inspect.getmembers(Stash, inspect.isfunction)
    named = [
        name
        for name, method in members
        if not name.startswith("_") and "session_id" in inspect.signature(method).parameters
    ]
    return [name for name in named if name not in CREATING]


@pytest.fixture
async def stash(tmp_path: Path) -> AsyncIterator[Stash]:
    async with stash_at(tmp_path / "s.db") as opened:
        await opened.record_messages([{"role": "user", "content": f"The nest is {SECRET}."}], session_id=SESSION)
        yield opened


async def result_of(stash: Stash, name: str) -> str:
    """What a method returns for the session, given the least that it needs."""
    parameters = inspect.signature(getattr(Stash, name)).parameters.values()
    needed = [each.name for each in parameters if each.default is each.empty and each.name not in ("self", "access")]
    arguments = {**{given: NEEDED.get(given) for given in needed}, "session_id": SESSION}
    result = getattr(stash, name)(**arguments)
    return repr([each async for each in result]) if inspect.isasyncgen(result) else repr(await result)


async def test_no_method_finds_a_session_of_another_owner(stash: Stash) -> None:
    other = stash.for_owner("other")
    names = methods_of_a_session()
    assert len(names) > 20
    for name in names:
        with pytest.raises(NotFoundError) as refused:
            pytest.fail(f"{name} returned {await result_of(other, name)}")
        assert SECRET not in str(refused.value)
    assert len(await history(stash)) == 1
