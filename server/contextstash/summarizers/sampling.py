"""The summarizer that uses the client's own model, if the client supports sampling."""

from __future__ import annotations

from dataclasses import dataclass

from contextstash.context.text.sanitize import encodable
from contextstash.summarizers import prompts
from contextstash.summarizers.base import MIN_CHARACTERS, SummaryRequest, WrittenSummary
from contextstash_storage.errors import SummarizerError

MAX_CHARACTERS = 400_000
"""At most this much of a session is sent to a client, about 100,000 tokens; of a longer session, its beginning and end.
It is half the window of a common model, because the client's model and window are unknown."""


@dataclass(frozen=True, slots=True)
class SamplingRequest:
    """A request to the client's model. `max_tokens` is the limit of its reply."""

    system: str
    prompt: str
    max_tokens: int


def sampling_prompt(request: SummaryRequest, output_chars: int | None) -> SamplingRequest:
    """The request to the client's model for a summary."""
    session = prompts.shortened_to(prompts.transcript_text(request.turns, output_chars), MAX_CHARACTERS, len)
    return SamplingRequest(
        system=prompts.system_text(request),
        prompt=prompts.user_text(session, request.previous, replaces=request.replaces),
        max_tokens=max(1_024, 2 * request.max_tokens),
    )


class SampledSummarizer:
    """Uses the reply of the client's model."""

    strategy = "sampling"
    slow = False

    def __init__(self, text: str) -> None:
        self._text = encodable(text).strip()

    async def write(self, request: SummaryRequest) -> WrittenSummary:
        if request.merging:
            raise SummarizerError("The client's model was not asked to merge summaries.")
        if len(self._text) < MIN_CHARACTERS:
            raise SummarizerError("The reply of the client's model is empty or too short to be a summary.")
        if request.count(self._text) > 2 * request.max_tokens:
            raise SummarizerError("The summary by the client's model is too long.")
        return WrittenSummary(self._text, self.strategy)
