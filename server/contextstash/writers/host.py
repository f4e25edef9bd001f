"""The host as summarizer: its own model wrote the summary and passes it."""

from __future__ import annotations

from contextstash.safety.sanitize import encodable
from contextstash.writers.base import MIN_CHARACTERS, SummaryRequest, WrittenSummary
from contextstash_storage.errors import BadInputError

MAX_TOKENS = 20_000
"""A longer text is not a summary: ten times a usual one, a tenth of a window of 200,000."""


class HostSummarizer:
    """Uses the text that the host passed, unless it is empty or too long to be a summary."""

    strategy = "host"
    slow = False

    def __init__(self, summary: str | None) -> None:
        """Raises BadInputError if the text cannot be a summary."""
        text = encodable(summary or "").strip()
        if len(text) < MIN_CHARACTERS:
            raise BadInputError(
                "summary is empty or too short to continue from. Pass the whole hand-off text, or omit it to get an"
                " extractive summary; the prompt compact describes what a summary must contain."
            )
        self._text = text

    async def write(self, request: SummaryRequest) -> WrittenSummary:
        """The text as it was passed: it is the host's, so it is not shortened to `request.max_tokens`."""
        tokens = request.count(self._text)
        if tokens > MAX_TOKENS:
            raise BadInputError(
                f"summary has {tokens:,} tokens; at most {MAX_TOKENS:,} are accepted. Shorten it to what is needed to"
                " continue."
            )
        return WrittenSummary(self._text, self.strategy)
