"""The summarizer whose model is the client's own, if the client lets servers ask it."""

from __future__ import annotations

from dataclasses import dataclass

from contextstash.context.text.sanitize import encodable
from contextstash.summarizers import prompts
from contextstash.summarizers.base import SummaryRequest, WrittenSummary
from contextstash_storage.errors import SummarizerError

MIN_CHARACTERS = 20

MAX_CHARACTERS = 400_000
"""A client is not sent more of a session than this, about 100,000 tokens; of a longer one its beginning and end."""


@dataclass(frozen=True, slots=True)
class SamplingRequest:
    """What to ask the client's model. `max_tokens` is of its answer."""

    system: str
    prompt: str
    max_tokens: int


def sampling_prompt(request: SummaryRequest, output_chars: int | None) -> SamplingRequest:
    """A request for a summary as one to the client's model."""
    session = prompts.shortened_to(prompts.transcript_text(request.turns, output_chars), MAX_CHARACTERS, len)
    return SamplingRequest(
        system=prompts.system_text(request),
        prompt=prompts.user_text(session, request.previous, replaces=request.replaces),
        max_tokens=max(1_024, 2 * request.max_tokens),
    )


class SampledSummarizer:
    """Takes what the client's model answered."""

    strategy = "sampling"
    slow = False

    def __init__(self, text: str) -> None:
        self._text = encodable(text).strip()

    async def write(self, request: SummaryRequest) -> WrittenSummary:
        if request.merging:
            raise SummarizerError("The client's model was not asked to merge summaries.")
        if len(self._text) < MIN_CHARACTERS:
            raise SummarizerError("The client's model answered nothing that is a summary.")
        if request.count(self._text) > 2 * request.max_tokens:
            raise SummarizerError("The client's model wrote too long a summary.")
        return WrittenSummary(self._text, self.strategy)
