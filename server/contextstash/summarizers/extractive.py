"""The extractive summarizer: always available, without network, and deterministic."""

from __future__ import annotations

import asyncio

from contextstash.context.extraction.summary.extractive_summary import extract_summary
from contextstash.summarizers.base import SummaryRequest, WrittenSummary


class ExtractiveSummarizer:
    """Composes a summary of verbatim parts of the session."""

    strategy = "extractive"
    slow = False

    async def write(self, request: SummaryRequest) -> WrittenSummary:
        merged = "\n\n".join(request.merging) or None
        text = await asyncio.to_thread(
            extract_summary,
            request.turns,
            previous=merged or (request.previous if request.replaces else None),
            standing=None if request.replaces else request.previous,
            superseded=request.superseded,
            max_tokens=request.max_tokens,
            count=request.count,
            instructions=request.instructions,
            history=request.history,
            shown=request.shown,
            words_kept=request.words_kept,
            first_seq=request.first_seq,
        )
        return WrittenSummary(text, self.strategy)
