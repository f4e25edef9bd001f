"""The lease of a compaction: the right to be the only one, in any process, that compacts a session."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio

from contextstash.base.plain_logs import error_trace
from contextstash.session.access import Access
from contextstash_storage.errors import ContextstashError, StoreError

logger = logging.getLogger(__name__)

LEASE_SECONDS = 60.0
"""How long a killed compaction blocks others from compacting the session; a running one renews its lease. A
minute without compaction is harmless, and a busy database delays a renewal by seconds only."""

RENEW_SECONDS = LEASE_SECONDS / 3
"""A third, so that two renewals may fail before the lease ends."""

RETRY_SECONDS = 1.0
"""Pause before a failed renewal is tried again; short, because the store has already waited for other processes."""

COMPACTION = "compaction"


@asynccontextmanager
async def only_one(access: Access, session_id: str) -> AsyncIterator[bool]:
    """Hold the lease for compacting the session, renewed until the end of the block; False if another compaction has
    it. If it is lost, another process may be doing the same work: the block is cancelled, and what follows it runs."""
    holder = secrets.token_hex(8)
    acquired, renewing = True, None
    ends = asyncio.get_running_loop().time() + LEASE_SECONDS
    try:
        # If this is cancelled, the store may have acquired it already.
        acquired = await access.store.acquire_lease(session_id, COMPACTION, holder, LEASE_SECONDS)
        with anyio.CancelScope() as block:
            if acquired:
                renewing = asyncio.create_task(_renew(access, session_id, holder, ends, block.cancel))
            yield acquired
    finally:
        # A client that closes its connection cancels the whole call: without the shield, the first await here would be
        # cancelled too, and other processes could not compact the session until the lease ends.
        with anyio.CancelScope(shield=True):
            if renewing is not None:
                renewing.cancel()
                await asyncio.gather(renewing, return_exceptions=True)
            if acquired:
                await _release(access, session_id, holder)


async def _release(access: Access, session_id: str, holder: str) -> None:
    try:
        await access.store.release_lease(session_id, COMPACTION, holder)
    except ContextstashError as error:  # the lease expires anyway; the compaction itself succeeded
        logger.warning("the lease of a compaction of %s was not released: %s", session_id, error)


async def _renew(access: Access, session_id: str, holder: str, ends: float, lost: Callable[[], None]) -> None:
    """Renew the lease until cancelled; if the store fails, retry until the lease ends. Then log why and call `lost`."""
    now, pause = asyncio.get_running_loop().time, RENEW_SECONDS
    while True:
        await asyncio.sleep(pause)
        asked = now()
        try:
            if not await access.store.acquire_lease(session_id, COMPACTION, holder, LEASE_SECONDS):
                why = "another process has taken it"
                break
            ends, pause = asked + LEASE_SECONDS, RENEW_SECONDS
        except StoreError as error:
            if now() >= ends:
                why = f"it could not be renewed: {error}"
                break
            logger.warning("the lease of a compaction of %s is not renewed yet: %s", session_id, error)
            pause = min(RETRY_SECONDS, max(0.0, ends - now()))
        except Exception as error:  # if this task died silently, a second compaction could start
            why = error_trace(error)
            break
    logger.warning("a compaction of %s lost its lease and is not applied: %s", session_id, why)
    lost()
