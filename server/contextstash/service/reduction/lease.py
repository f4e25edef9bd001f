"""The lease of a compaction: the right to be the only one, in any process, that compacts a session."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio

from contextstash.faults import fault_of
from contextstash.service.session_access import Access
from contextstash_storage.errors import ContextstashError, StoreError

logger = logging.getLogger(__name__)

LEASE_SECONDS = 60.0
"""After so long another process may compact a session whose compaction was killed; one that lives renews its lease."""

RENEW_SECONDS = LEASE_SECONDS / 3
"""Two renewals may fail before the lease ends."""

RETRY_SECONDS = 1.0
"""After so long a renewal that failed is tried again; the store has then already waited for other processes."""

COMPACTION = "compaction"

LOST = "Nothing done: this compaction lost its lease, another may be running; its summary will be there in a moment."

Result = TypeVar("Result")


class LeaseLostError(ContextstashError):
    """Another process may do the same work by now; what this one has written is not to be applied."""


class Lease:
    """Held from the beginning, until `lose`. One that nobody renews stands for work that needs none."""

    def __init__(self) -> None:
        self._lost = asyncio.Event()

    def lose(self) -> None:
        self._lost.set()

    def check(self) -> None:
        """Raises LeaseLostError if the lease is lost."""
        if self._lost.is_set():
            raise LeaseLostError(LOST)

    async def while_held(self, work: Coroutine[Any, Any, Result]) -> Result:
        """What `work` returns; it is cancelled, and LeaseLostError raised, as soon as the lease is lost."""
        working, losing = asyncio.create_task(work), asyncio.create_task(self._lost.wait())
        try:
            await asyncio.wait({working, losing}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise LeaseLostError(LOST)
            return working.result()
        finally:
            working.cancel()
            losing.cancel()
            await asyncio.gather(working, losing, return_exceptions=True)


@asynccontextmanager
async def only_one(access: Access, session_id: str) -> AsyncIterator[Lease | None]:
    """The lease of the only compaction of the session, renewed until the end of the block; None if another has it."""
    holder = secrets.token_hex(8)
    ends = asyncio.get_running_loop().time() + LEASE_SECONDS
    if not await _acquired_or_released(access, session_id, holder):
        yield None
        return
    lease = Lease()
    renewing = asyncio.create_task(_renew(access, session_id, holder, lease, ends))
    try:
        yield lease
    finally:
        renewing.cancel()
        # A client that closes its connection cancels the whole call: without the shield, the first await here would be
        # cancelled too, and other processes could not compact the session until the lease ends.
        with anyio.CancelScope(shield=True):
            await asyncio.gather(renewing, return_exceptions=True)
            await _release(access, session_id, holder)


async def _acquired_or_released(access: Access, session_id: str, holder: str) -> bool:
    """Whether the lease is acquired; releases it if this is cancelled, as the store may have acquired it already."""
    try:
        return await _acquired(access, session_id, holder)
    except asyncio.CancelledError:
        with anyio.CancelScope(shield=True):
            await _release(access, session_id, holder)
        raise


async def _release(access: Access, session_id: str, holder: str) -> None:
    try:
        await access.store.release_lease(session_id, COMPACTION, holder)
    except ContextstashError as error:  # it ends without us; what was compacted must not look as if it failed
        logger.warning("the lease of a compaction of %s was not released: %s", session_id, error)


async def _acquired(access: Access, session_id: str, holder: str) -> bool:
    return await access.store.acquire_lease(session_id, COMPACTION, holder, LEASE_SECONDS)


async def _renew(access: Access, session_id: str, holder: str, lease: Lease, ends: float) -> None:
    """Renew the lease again and again; where the store fails, until the lease ends. Loses it, and says so, at last."""
    now, pause = asyncio.get_running_loop().time, RENEW_SECONDS
    while True:
        await asyncio.sleep(pause)
        asked = now()
        try:
            if not await _acquired(access, session_id, holder):
                why = "another process has taken it"
                break
            ends, pause = asked + LEASE_SECONDS, RENEW_SECONDS
        except StoreError as error:
            if now() >= ends:
                why = f"it could not be renewed: {error}"
                break
            logger.warning("the lease of a compaction of %s is not renewed yet: %s", session_id, error)
            pause = min(RETRY_SECONDS, max(0.0, ends - now()))
        except Exception as error:  # a renewal that dies unseen would let a second compaction in
            why = fault_of(error)
            break
    logger.warning("a compaction of %s lost its lease and is not applied: %s", session_id, why)
    lease.lose()
