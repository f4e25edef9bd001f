"""The protocol of a stash that is opened at its first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from contextstash.service.stash import Stash


class OpenedStash(Protocol):
    """Returns the stash, and opens it at the first call."""

    async def get(self) -> Stash: ...
