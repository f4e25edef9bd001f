"""Who writes a summary: the host, a model, the client's own model, or contextstash itself."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence

from contextstash.summarizers.base import (
    Summarizer,
    SummaryRequest,
    WriterCall,
    WriterFailedError,
    WriterSettings,
    WrittenSummary,
)
from contextstash.summarizers.extractive import ExtractiveSummarizer
from contextstash.summarizers.host import HostSummarizer
from contextstash_storage.errors import BadInputError, SummarizerError

__all__ = [
    "CONSENT",
    "STRATEGIES",
    "Summarizer",
    "SummaryRequest",
    "WrittenSummary",
    "choose",
    "content_key",
    "write_summary",
]

STRATEGIES = ("auto", "host", "anthropic", "sampling", "extractive")

CONSENT = 'summarizer = "anthropic", summarizer_model, or the variable CONTEXTSTASH_ANTHROPIC_API_KEY'
"""What says that a model may be called, for messages."""

logger = logging.getLogger(__name__)


def choose(
    strategy: str,
    summary: str | None = None,
    *,
    settings: WriterSettings | None = None,
    sampled: str | None = None,
) -> tuple[Summarizer, ...]:
    """The writers to try in turn; the last can always write.

    `auto` takes the host's `summary` if there is one, else a model whose key or address is set (`settings` is None
    unless the user lets one be called), else what the client's model answered (`sampled`), else the extractive
    summarizer. Raises BadInputError on an unknown strategy, on `host` without a summary, on another strategy with one,
    and on a model that may not or cannot be called.
    """
    if strategy not in STRATEGIES:
        raise BadInputError(f"There is no strategy '{strategy[:40]}' here. Pass one of {', '.join(STRATEGIES)}.")
    if summary is not None:
        if strategy not in ("auto", "host"):
            raise BadInputError(f"Pass either a summary or the strategy {strategy}: a summary is taken as it is.")
        return (HostSummarizer(summary),)
    if strategy == "host":
        raise BadInputError(
            "The strategy host needs `summary`: write it as the prompt compact says and pass it,"
            " or use the strategy auto."
        )
    return (*_models(strategy, settings, sampled), ExtractiveSummarizer())


def _models(strategy: str, settings: WriterSettings | None, sampled: str | None) -> list[Summarizer]:
    reachable = settings is not None and bool(settings.api_key or settings.base_url)
    if strategy == "anthropic" and not reachable:
        raise BadInputError(
            "The strategy anthropic calls a model, which needs consent and a key. Consent, in the user's own"
            f" configuration: {CONSENT}. The key: that one or ANTHROPIC_API_KEY, or for an API of the user's own"
            " summarizer_base_url. Else use the strategy auto."
        )
    found: list[Summarizer] = []
    if strategy in ("auto", "anthropic") and settings is not None and reachable:
        from contextstash.summarizers.anthropic import AnthropicSummarizer

        found.append(AnthropicSummarizer(settings))
    if strategy in ("auto", "sampling") and sampled is not None:
        from contextstash.summarizers.sampling import SampledSummarizer

        found.append(SampledSummarizer(sampled))
    return found


async def write_summary(request: SummaryRequest, writers: Sequence[Summarizer]) -> WrittenSummary:
    """The summary of the first writer that can; its note says which could not and why, its calls are those of all.

    Raises the last writer's error if none can.
    """
    calls: list[WriterCall] = []
    failed: list[str] = []
    for place, writer in enumerate(writers):
        try:
            written = await writer.write(request)
        except SummarizerError as error:
            logger.warning("the writer %s failed: %s", writer.strategy, error)
            calls += error.calls if isinstance(error, WriterFailedError) else ()
            if place == len(writers) - 1:
                raise
            failed.append(f"{writer.strategy} could not write the summary: {error}")
        else:
            notes = [*failed, written.note or ""]
            return WrittenSummary(
                text=written.text,
                strategy=written.strategy,
                model=written.model,
                calls=(*calls, *written.calls),
                note=" ".join(note for note in notes if note) or None,
            )
    raise SummarizerError("Nobody is there to write a summary.")


def content_key(request: SummaryRequest, strategy: str, model: str | None) -> str:
    """A name for what a summary is made of: the same session, wishes and writer give the same."""
    digest = hashlib.sha256()
    head = [strategy, model, request.prompt, request.instructions, request.max_tokens, request.previous]
    digest.update(json.dumps([*head, request.replaces, request.merging]).encode())
    for turn in request.turns:
        for text in (turn.role, *turn.texts):
            digest.update(text.encode("utf-8", "surrogatepass"))
            digest.update(b"\0")
    return digest.hexdigest()
