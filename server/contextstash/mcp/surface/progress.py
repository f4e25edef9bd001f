"""Progress notifications during a long operation, for clients that asked for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp.server.mcpserver import Context

REPORT_SECONDS = 2.0
"""Seconds between two notifications; a guess: often enough for a person who waits."""


@asynccontextmanager
async def reported(context: Context[Any, Any], message: str) -> AsyncIterator[None]:
    """Report progress at once and then every few seconds, without a total: how long a model takes is unknown."""
    await context.report_progress(0, message=message)
    reporting = asyncio.create_task(_report(context, message))
    try:
        yield
    finally:
        reporting.cancel()
        await asyncio.gather(reporting, return_exceptions=True)


async def _report(context: Context[Any, Any], message: str) -> None:
    seconds = 0.0
    while True:
        await asyncio.sleep(REPORT_SECONDS)
        seconds += REPORT_SECONDS
        await context.report_progress(seconds, message=f"{message}, {seconds:.0f} s")
