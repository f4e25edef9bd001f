"""Progress while something long is under way, for clients that asked to hear of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp.server.mcpserver import Context

SECONDS_BETWEEN = 2.0


@asynccontextmanager
async def reported(context: Context[Any, Any], message: str) -> AsyncIterator[None]:
    """Say at once and then every few seconds that this goes on; how long it will take is not known."""
    await context.report_progress(0, message=message)
    beating = asyncio.create_task(_beat(context, message))
    try:
        yield
    finally:
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)


async def _beat(context: Context[Any, Any], message: str) -> None:
    seconds = 0.0
    while True:
        await asyncio.sleep(SECONDS_BETWEEN)
        seconds += SECONDS_BETWEEN
        await context.report_progress(seconds, message=f"{message}, {seconds:.0f} s")
