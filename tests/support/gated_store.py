"""The real store with a gate before one of its operations, so that a test decides what happens in between."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from contextstash.stash import Stash


class Gate:
    """Callers of the operation wait here until `open`; `arrived` is set with the first, `arrivals` counts them."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.arrived = asyncio.Event()
        self.arrivals = 0

    async def passed(self) -> None:
        self.arrivals += 1
        self.arrived.set()
        await self.open.wait()


def before(stash: Stash, operation: str, act: Callable[[], Awaitable[None]]) -> None:
    """Have `act` awaited before each call of a store's operation; what `act` raises, the operation raises."""
    store: Any = stash.store
    real = getattr(store, operation)

    async def acting(*arguments: Any, **named: Any) -> Any:
        await act()
        return await real(*arguments, **named)

    setattr(store, operation, acting)


@contextmanager
def gate_before(stash: Stash, operation: str) -> Iterator[Gate]:
    """A gate before a store's operation; it opens at the end of the block."""
    gate = Gate()
    before(stash, operation, gate.passed)
    try:
        yield gate
    finally:
        gate.open.set()
