"""A real stash on a real SQLite file, and a session walked through all that can be done to it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from contextstash.stash import Stash
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
    access = stash
    return [output.handle for output in await access.store.read_outputs(session_id)]
