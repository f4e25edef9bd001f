"""Opens the user's database, encrypted or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contextstash.configuration.encryption_key import database_key
from contextstash.configuration.locations import default_database

if TYPE_CHECKING:
    from contextstash_storage.databases import Location
    from contextstash_storage.store import SessionStore


HOOK_BUSY_SECONDS = 2.0
"""How long a hook waits while another process writes to the database, before it gives up: the client waits for the hook
after every tool call."""


async def open_database(location: Location | None = None, *, busy_seconds: float | None = None) -> SessionStore:
    """The store in a database, by default the one that is used if none is named. Raises StoreError if it cannot be
    used."""
    from contextstash_storage.databases import open_store

    return await open_store(location or default_database(), busy_seconds=busy_seconds, find_key=database_key)
