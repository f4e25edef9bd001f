"""The lease of a compaction: the right to be the only one, in any process, that compacts a session."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

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

LOST = (
    "Nothing done: this compaction lost its lease, another may be running; its summary will be available in a moment."
)

Result = TypeVar("Result")


class LeaseLostError(ContextstashError):
    """Another process may be doing the same work now, so what this one has written must not be applied."""


class Lease:
    """Held from its creation until `lose`. Work that needs no lease gets one that is never lost."""

    def __init__(self) -> None:
        self._lost = asyncio.Event()

    def lose(self) -> None:
        self._lost.set()

    def check(self) -> None:
        """Raises LeaseLostError if the lease is lost."""
        if self._lost.is_set():
            raise LeaseLostError(LOST)

    async def while_held(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Return the result of `work`. As soon as the lease is lost, cancel it and raise LeaseLostError."""
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
    """The lease for compacting the session, renewed until the end of the block; None if another compaction has it."""
    holder, lease = secrets.token_hex(8), Lease()
    acquired, renewing = True, None
    ends = asyncio.get_running_loop().time() + LEASE_SECONDS
    try:
        # If this is cancelled, the store may have acquired it already.
        acquired = await access.store.acquire_lease(session_id, COMPACTION, holder, LEASE_SECONDS)
        if acquired:
            renewing = asyncio.create_task(_renew(access, session_id, holder, lease, ends))
        yield lease if acquired else None
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


async def _renew(access: Access, session_id: str, holder: str, lease: Lease, ends: float) -> None:
    """Renew the lease until cancelled; if the store fails, retry until the lease ends. Then mark it as lost and log
    why."""
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
    lease.lose()
