"""The messages of a session side by side with what the model sees of them, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from contextstash.display.words import seer
from contextstash.service.results import ContextStatus, SideBySideMessage, SideBySideSummary

if TYPE_CHECKING:
    from contextstash.service.stash import Stash

PAGE_MESSAGES = 200
"""Messages in memory at a time."""


def seer_of(status: ContextStatus) -> str:
    """Who sees the view of a session. A client that sends its own history never shows it to its model."""
    return seer(status.estimate.view_tokens is not None)


async def side_by_side(
    stash: Stash, session_id: str
) -> AsyncIterator[tuple[SideBySideSummary | None, SideBySideMessage]]:
    """The messages of a session in order. Before the first message that a summary replaces, the summary with it."""
    yielded: set[str] = set()
    first: int | None = 0
    while first is not None:
        page = await stash.read_side_by_side(session_id, first=first, limit=PAGE_MESSAGES)
        for message in page.messages:
            for summary in page.summaries:
                if summary.first_seq == message.seq and summary.summary_id not in yielded:
                    yielded.add(summary.summary_id)
                    yield summary, message
            yield None, message
        first = page.next_seq
