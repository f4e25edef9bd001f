"""Opens the sessions' database with its settings: for commands, servers, the proxy, the gateway, pages, the library.

async with await StashOpener(Path("sessions.db"))() as stash:
    await stash.list_sessions()
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from contextstash.configuration.setting_layers import Configuration

if TYPE_CHECKING:
    from contextstash.stash import Stash
    from contextstash_storage.databases import Location

T = TypeVar("T")

CALL: ContextVar[Mapping[str, Any] | None] = ContextVar("CALL", default=None)
"""The `_meta` of the tool call in hand: by it clients tell which of their sessions makes the call."""


@dataclass(frozen=True, slots=True)
class StashOpener:
    """A database, None for the user's default one, and the settings of what opens it.

    `follow` names the client whose transcripts are read (`claude-code`).
    """

    database: Location | None = None
    settings: Configuration = field(default_factory=Configuration)
    follow: str | None = None

    async def __call__(self) -> Stash:
        """The open stash, to be closed by the caller. Raises StoreError if the database cannot be used, BadInputError
        if no transcripts can be followed."""
        from contextstash.clients.client import clients, project_of
        from contextstash.configuration.database import open_database
        from contextstash.configuration.setting_layers import api_key_from
        from contextstash.stash import Stash

        store = await open_database(self.database)
        try:
            stash = Stash(
                store,
                settings=self.settings.settings_layer,
                api_key=api_key_from(os.environ),
                consent=self.settings.may_call_model,
                host_windows={each.name: each.used_window for each in clients() if each.used_window},
                project_of=project_of,
            )
            if self.follow is not None:
                from contextstash.clients.follow import Follower, find_transcripts

                follower = Follower(stash, find_transcripts(self.follow))
                stash.options["current_session"] = lambda: follower.catch_up(CALL.get())
        except BaseException:
            await store.close()
            raise
        return stash

    def run(self, work: Callable[[Stash], Awaitable[T]]) -> T:
        """Run `work` with an open stash and return its result."""

        async def with_stash() -> T:
            async with await self() as stash:
                return await work(stash)

        return asyncio.run(with_stash())
