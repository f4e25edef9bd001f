"""The extractive summarizer: always available, without network, and deterministic."""

from __future__ import annotations

import asyncio

from contextstash.events.state import fold
from contextstash.handoff.summary import summary_of
from contextstash.writers.base import SummaryRequest, WrittenSummary


class ExtractiveSummarizer:
    """Writes a summary from the state of the session."""

    strategy = "extractive"
    slow = False

    async def write(self, request: SummaryRequest) -> WrittenSummary:
        text = await asyncio.to_thread(_written, request)
        return WrittenSummary(text, self.strategy)


def _written(request: SummaryRequest) -> str:
    return summary_of(
        fold(request.turns) if request.state is None else request.state,
        since=request.since,
        beside=request.beside,
        earlier=request.earlier,
        instructions=request.instructions or "",
        max_tokens=request.max_tokens,
        count=request.count,
    )
