"""The stashes of a server's owners: each request is carried out with the one of its token's owner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp.server.auth.middleware.auth_context import get_access_token

from contextstash.base.bounded_cache import BoundedCache
from contextstash.mcp.lazy_stash import LazyStash, OpenStash
from contextstash.web.access_tokens import TokenVerification
from contextstash_storage.errors import BadInputError

if TYPE_CHECKING:
    from contextstash.stash import Stash

MAX_OWNERS = 64
"""Owners whose sessions stay in memory between requests, each up to 8 sessions of some 2 MB. With more active owners,
sessions are read from the database again."""


class OwnerStashes(LazyStash):
    """Opens one database, and returns of it only what belongs to the owner of the request in hand. Each tool, resource,
    prompt and completion takes its stash from here, so that none can name another owner."""

    def __init__(self, open_stash: OpenStash) -> None:
        super().__init__(open_stash)
        self._owned: BoundedCache[str, Stash] = BoundedCache(MAX_OWNERS)
        self._verification: TokenVerification | None = None

    async def get(self) -> Stash:
        """The stash of the request's owner. Raises BadInputError if the request has none."""
        token = get_access_token()
        if token is None or not token.subject:
            raise BadInputError("This request has no token: send 'Authorization: Bearer TOKEN'.")
        return await self.of(token.subject)

    async def whole(self) -> Stash:
        """The stash of this machine's user, which was opened."""
        return await super().get()

    async def of(self, owner: str) -> Stash:
        """The stash of an owner."""
        opened = await self.whole()
        if owner == opened.owner:
            return opened
        # The last used ones stay. One that is removed meanwhile works on for those who have it.
        return self._owned.set(owner, self._owned.get(owner) or opened.for_owner(owner))

    async def verification(self) -> TokenVerification:
        """The verification of the tokens in the database."""
        if self._verification is None:
            self._verification = TokenVerification((await self.whole()).tokens)
        return self._verification

    async def _close(self) -> None:
        owned = list(self._owned.values())
        self._owned.clear()
        for stash in owned:
            await stash.end()
        await super()._close()
