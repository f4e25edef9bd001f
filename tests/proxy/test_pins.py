"""What the user or the model has pinned stays in the requests of a proxied session."""

from __future__ import annotations

import asyncio
from pathlib import Path

from contextstash.stash import Stash
from contextstash_storage.sqlite.store import open_sqlite
from tests.support.caching_provider import CachingProvider
from tests.support.proxies import ID, OLD, Clock, placeholders, play, request_of, running_proxy, session


async def pin(database: Path, *pins: str, handle_of: int | None = None) -> None:
    """Pin files, and the output of a call, by another process's stash."""
    store = await open_sqlite(database)
    if handle_of is not None:
        outputs = await store.read_outputs(ID)
        pins = (*pins, outputs[handle_of].handle)
    stash = Stash(store)
    await stash.configure_session(ID, pin=pins)
    await stash.close()


def test_pinned_outputs_and_files_are_never_pruned(provider: CachingProvider, clock: Clock, tmp_path: Path) -> None:
    messages = session(8)
    with running_proxy(provider, tmp_path / "stash.db", clock) as proxy:
        play(proxy, messages[:-2])
        asyncio.run(pin(tmp_path / "stash.db", "/a/1", handle_of=3))
        clock.now += 400
        proxy.send(request_of(messages))
        stay = {"toolu_1", "toolu_3"}
        assert placeholders(provider.bodies[-1]) == [name for name in OLD if name not in stay]
        provider.window = 5_000
        proxy.send(request_of(messages))
        assert not stay & set(placeholders(provider.bodies[-1]))
