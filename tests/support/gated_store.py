"""The real store with something that happens before one of its operations."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from contextstash.stash import Stash


def before(stash: Stash, operation: str, act: Callable[[], Awaitable[None]]) -> None:
    """Have `act` awaited before each call of a store's operation; what `act` raises, the operation raises."""
    store: Any = stash.store
    real = getattr(store, operation)

    async def acting(*arguments: Any, **named: Any) -> Any:
        await act()
        return await real(*arguments, **named)

    setattr(store, operation, acting)
