"""The protocols of stashes that are opened at their first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from contextstash.service.stash import Stash


class OpenedStash(Protocol):
    """Returns the stash, and opens it at the first call."""

    async def get(self) -> Stash: ...


class OwnedStashes(Protocol):
    """Returns the stash of an owner's sessions, and opens the database at the first call."""

    async def of(self, owner: str) -> Stash: ...
