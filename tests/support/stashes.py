"""A real stash on a real SQLite file, and messages of exact sizes to walk thresholds with."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from contextstash.stash import Stash
from contextstash.view.view import parts_of, results_of
from contextstash_storage.records import Native
from contextstash_storage.sqlite import open_sqlite
from tests.support.provider_rules import violations

SESSION = "session"


@asynccontextmanager
async def stash_at(path: Path, *, api_key: str | None = None, **settings: Any) -> AsyncIterator[Stash]:
    """A stash on the database at `path`, without automatic management unless it is asked for."""
    stash = Stash(await open_sqlite(path), settings={"automatic": False, **settings}, api_key=api_key)
    try:
        yield stash
    finally:
        await stash.close()


async def history(stash: Stash, session_id: str = SESSION) -> list[Native]:
    """Every recorded message, in order."""
    natives: list[Native] = []
    first: int | None = 0
    while first is not None:
        page = await stash.read_messages(session_id, first=first, limit=500)
        natives += [line.message for line in page.messages]
        first = page.next_seq
    return natives


async def view(stash: Stash, session_id: str = SESSION) -> list[Native]:
    """The messages to send next."""
    return (await stash.get_context(session_id)).messages


async def valid_view(stash: Stash, format_name: str, session_id: str = SESSION) -> list[Native]:
    """The messages to send next, validated against the provider's rules."""
    natives = await view(stash, session_id)
    assert violations(format_name, natives) == []
    return natives


def as_bytes(natives: Sequence[Native]) -> bytes:
    """Messages as bytes: equal only if they are identical, including the order of keys."""
    return json.dumps(natives).encode()


async def whole_output(stash: Stash, handle: str, session_id: str | None = SESSION) -> str:
    """An archived output, its pages joined; without a session one that is found by its handle alone."""
    page = await stash.get_archived_output(handle, session_id=session_id)
    text = page.text
    while page.next_offset is not None:
        page = await stash.get_archived_output(handle, session_id=session_id, offset=page.next_offset)
        text += page.text
    return text


async def all_handles(stash: Stash, session_id: str = SESSION) -> list[str]:
    """The handles of all tool outputs of a session; no use case lists them all, so the store is asked."""
    return [output.handle for output in await stash.store.read_outputs(session_id)]


async def counters_in_step(stash: Stash, session_id: str = SESSION) -> None:
    """Assert that a session's counters are what the entries of its view add up to."""
    snapshot = await stash.snapshot(session_id)
    counters = snapshot.session.counters
    assert dict(counters.parts) == {part: tokens for part, tokens in parts_of(snapshot.entries).items() if tokens}
    assert counters.view_messages == len(snapshot.entries)
    assert counters.view_results == results_of(snapshot.entries)
    assert counters.view_tokens == sum(entry.tokens for entry in snapshot.entries)


def before(stash: Stash, operation: str, act: Callable[[], Awaitable[None]]) -> None:
    """Have `act` awaited before each call of a store's operation; what `act` raises, the operation raises."""
    store: Any = stash.store
    real = getattr(store, operation)

    async def acting(*arguments: Any, **named: Any) -> Any:
        await act()
        return await real(*arguments, **named)

    setattr(store, operation, acting)


def user(characters: int) -> Native:
    """A user message of so many characters."""
    return {"role": "user", "content": "u" * characters}


def reply(characters: int) -> Native:
    """An assistant message of so many characters."""
    return {"role": "assistant", "content": "r" * characters}


def round_of(place: int, text: str, *, tool: str = "bash", argument: str = "") -> list[Native]:
    """A tool call and its result; without `argument` the call takes 16 characters, name and arguments together."""
    arguments = f'{{"path":"{argument}"}}' if argument else f'{{"n":"{place:06}"}}'
    call = {"id": f"call_{place:06}", "type": "function", "function": {"name": tool, "arguments": arguments}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": text},
    ]


def rounds(sizes: Sequence[int], *, tool: str = "bash") -> list[Native]:
    """Tool calls whose results have so many characters each, every one different."""
    natives: list[Native] = []
    for place, size in enumerate(sizes):
        natives += round_of(place, (f"{place:04}" * (size // 4 + 1))[:size], tool=tool)
    return natives


def results(natives: Sequence[Native]) -> list[str]:
    """What the tool messages say."""
    return [native["content"] for native in natives if native["role"] == "tool"]


def called(number: int, tool: str, arguments: Mapping[str, Any], output: str, said: str | None = None) -> list[Native]:
    """A call of a tool with these arguments, before which the agent says something, and its output."""
    function = {"name": tool, "arguments": json.dumps(arguments)}
    call = {"type": "function", "id": f"c{number}", "function": function}
    return [
        {"role": "assistant", "content": said, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": output},
    ]
