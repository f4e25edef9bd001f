"""The messages of a session side by side with what the model sees of them, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from contextstash.service.results import BesideMessage, BesideSummary

if TYPE_CHECKING:
    from contextstash.service.stash import Stash

AT_ONCE = 200
"""Messages that are held in memory at a time."""


async def beside(stash: Stash, session_id: str) -> AsyncIterator[tuple[BesideSummary | None, BesideMessage]]:
    """The messages of a session in order; before the first that a summary stands for, the summary, with it."""
    told: set[str] = set()
    first: int | None = 0
    while first is not None:
        page = await stash.read_beside(session_id, first=first, limit=AT_ONCE)
        for message in page.messages:
            for summary in page.summaries:
                if summary.first_seq == message.seq and summary.summary_id not in told:
                    told.add(summary.summary_id)
                    yield summary, message
            yield None, message
        first = page.next_seq
