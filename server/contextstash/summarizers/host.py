"""The host as summarizer: its own model wrote the summary and hands it over."""

from __future__ import annotations

from contextstash.context.text.sanitize import encodable
from contextstash.summarizers.base import SummaryRequest, WrittenSummary
from contextstash_storage.errors import BadInputError

MAX_TOKENS = 20_000
"""A longer text is no summary."""

MIN_CHARACTERS = 20


class HostSummarizer:
    """Takes the text that the host passed, unless it is empty or too long to be a summary."""

    strategy = "host"
    slow = False

    def __init__(self, summary: str | None) -> None:
        """Raises BadInputError if the text cannot be a summary."""
        text = encodable(summary or "").strip()
        if len(text) < MIN_CHARACTERS:
            raise BadInputError(
                "summary is empty or too short to go on from. Pass the whole hand-off text, or"
                " leave it out to have"
                " an extractive summary written; the prompt compact says what a summary must hold."
            )
        self._text = text

    async def write(self, request: SummaryRequest) -> WrittenSummary:
        """The text as it was passed: it is the host's, so `request.max_tokens` doesn't shorten it."""
        tokens = request.count(self._text)
        if tokens > MAX_TOKENS:
            raise BadInputError(
                f"summary has {tokens:,} tokens; at most {MAX_TOKENS:,} are taken. Shorten"
                " it to what is needed to go on."
            )
        return WrittenSummary(self._text, self.strategy)
