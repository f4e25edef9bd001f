"""The lease of a compaction: the right to be the only one, in any process, that compacts a session."""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from contextstash.session.access import Access
from contextstash_storage.errors import ContextstashError

logger = logging.getLogger(__name__)

LEASE_SECONDS = 60.0
"""Longer than a compaction without a model takes, two seconds with 100,000 messages if nothing else runs. A killed one
blocks others for so long, in which requests still fit. Two at once would both pay for a summary; the second finds the
view edited."""

MODEL_SECONDS = 240.0
"""The same if a model writes the summary, which is called for at most 180 seconds."""

COMPACTION = "compaction"


@asynccontextmanager
async def only_one(access: Access, session_id: str) -> AsyncIterator[bool]:
    """Hold the lease for compacting the session until the end of the block; False if another compaction has it."""
    session = await access.read_session(session_id)
    seconds = MODEL_SECONDS if access.reaches_model(session.agent, access.settings(session)) else LEASE_SECONDS
    holder = secrets.token_hex(8)
    acquired = True
    try:
        # If this is cancelled, the store may have acquired it already.
        acquired = await access.store.acquire_lease(session_id, COMPACTION, holder, seconds)
        yield acquired
    finally:
        # A client that closes its connection cancels the whole call: without the shield, the first await here would be
        # cancelled too, and other processes could not compact the session until the lease ends.
        if acquired:
            with anyio.CancelScope(shield=True):
                await _release(access, session_id, holder)


async def _release(access: Access, session_id: str, holder: str) -> None:
    try:
        await access.store.release_lease(session_id, COMPACTION, holder)
    except ContextstashError as error:  # the lease expires anyway; the compaction itself succeeded
        logger.warning("the lease of a compaction of %s was not released: %s", session_id, error)
