"""A stash that is opened when it is first asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from contextstash.service.stash import Stash


class OpenedStash(Protocol):
    """Something that answers the open stash, opening it at the first time."""

    async def get(self) -> Stash: ...
