"""The tool compact_session, which reports its progress while a model writes the summary.

This module does not import `annotations` from `__future__`: the SDK needs a tool's annotations as objects.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

from mcp.server.mcpserver import Context
from pydantic import Field

from contextstash.mcp.lazy_stash import LazyStash
from contextstash.mcp.sendable import clipped
from contextstash.mcp.surface.argument_types import DryRun, SessionId
from contextstash.results import CompactResult
from contextstash.session_names import whole_id

MAX_SUMMARY_CHARACTERS = 24_000
"""Longest summary that an answer repeats, about 6,000 tokens; contextstash itself writes at most 2,500 tokens."""

Strategy = Annotated[
    Literal["auto", "host", "anthropic", "extractive"],
    Field(description="Who writes the summary: you (host), or contextstash by one of the other means"),
]
Summary = Annotated[
    str | None,
    Field(
        description="Your summary: task, user's decisions and constraints, files changed, errors, open items, next step"
    ),
]
Instructions = Annotated[str | None, Field(description="What the summary must keep, if you do not write it")]


def compact_session_of(stash: LazyStash) -> Callable[..., Awaitable[CompactResult]]:
    """The tool's function on a stash that is opened at first use."""

    async def compact_session(
        context: Context[Any, Any],
        session_id: SessionId = None,
        summary: Summary = None,
        instructions: Instructions = None,
        strategy: Strategy = "auto",
        dry_run: DryRun = False,
    ) -> CompactResult:
        """Replace all but the recent messages by a summary, preferably yours. Use at level compact, at a finished step,
        or before a new topic; not amid an edit. Reversible."""
        opened = await stash.get()
        async with reported(context, "Summarizing"):
            result = await opened.compact_session(
                session_id and await whole_id(opened, session_id),
                summary=summary,
                instructions=instructions,
                strategy=strategy,
                dry_run=dry_run,
            )
        if summary is not None or result.summary is None:
            return result.model_copy(update={"summary": None})
        return result.model_copy(update={"summary": clipped(result.summary, MAX_SUMMARY_CHARACTERS, "get_summary")})

    return compact_session


REPORT_SECONDS = 2.0
"""Seconds between two progress notifications, for a person who waits."""


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
