"""Who writes a summary: the host, or contextstash itself."""

from __future__ import annotations

from contextstash.summarizers.base import Summarizer, SummaryRequest, WrittenSummary
from contextstash.summarizers.extractive import ExtractiveSummarizer
from contextstash.summarizers.host import HostSummarizer
from contextstash_storage.errors import BadInputError

__all__ = ["STRATEGIES", "Summarizer", "SummaryRequest", "WrittenSummary", "choose"]

STRATEGIES = ("auto", "host", "extractive")


def choose(strategy: str, summary: str | None = None) -> Summarizer:
    """The summarizer of a strategy; `summary` is the text that the host passed, if it did.

    `auto` takes the host's text where there is one, else the extractive summarizer. Raises BadInputError on
    an unknown strategy, on `host` without a text, and on another strategy with one.
    """
    if strategy not in STRATEGIES:
        raise BadInputError(f"There is no strategy '{strategy[:40]}' here. Pass one of {', '.join(STRATEGIES)}.")
    if strategy == "extractive" and summary is not None:
        raise BadInputError("Pass either a summary or the strategy extractive: a summary is taken as it is.")
    if strategy == "host" and summary is None:
        raise BadInputError(
            "The strategy host needs `summary`: write it as the prompt compact says and pass it,"
            " or use the strategy auto."
        )
    return ExtractiveSummarizer() if summary is None else HostSummarizer(summary)
