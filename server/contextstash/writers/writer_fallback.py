"""Who writes a summary: the host, a model, or contextstash itself."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence

from contextstash.writers.base import (
    Summarizer,
    SummaryRequest,
    WriterCall,
    WriterFailedError,
    WriterSettings,
    WrittenSummary,
)
from contextstash.writers.extractive import ExtractiveSummarizer
from contextstash.writers.host import HostSummarizer
from contextstash_storage.errors import BadInputError, SummarizerError

STRATEGIES = ("auto", "host", "anthropic", "extractive")

CONSENT = 'summarizer = "anthropic", summarizer_model, or the variable CONTEXTSTASH_ANTHROPIC_API_KEY'
"""The ways in which a user consents to calls of a model, as text for messages."""

logger = logging.getLogger(__name__)


def choose(
    strategy: str,
    summary: str | None = None,
    *,
    settings: WriterSettings | None = None,
) -> tuple[Summarizer, ...]:
    """The summarizers to try in order; the last one cannot fail for lack of a model.

    `auto` uses the host's `summary` if there is one, else a model whose key or base URL is set (`settings` is None
    unless the user consents to its use), else the extractive summarizer. Raises BadInputError if the
    strategy is unknown, if it is `host` and there is no summary, if it is neither `auto` nor `host` and there is one,
    or if it needs a model that may not or cannot be called.
    """
    if strategy not in STRATEGIES:
        raise BadInputError(f"Unknown strategy '{strategy[:40]}'. Pass one of {', '.join(STRATEGIES)}.")
    if summary is not None:
        if strategy not in ("auto", "host"):
            raise BadInputError(
                f"Pass either a summary or the strategy {strategy}: a passed summary is used unchanged."
            )
        return (HostSummarizer(summary),)
    if strategy == "host":
        raise BadInputError(
            "The strategy host needs `summary`: write one as the prompt compact describes and pass it,"
            " or use the strategy auto."
        )
    return (*_models(strategy, settings), ExtractiveSummarizer())


def _models(strategy: str, settings: WriterSettings | None) -> list[Summarizer]:
    reachable = settings is not None and bool(settings.api_key or settings.base_url)
    if strategy == "anthropic" and not reachable:
        raise BadInputError(
            "The strategy anthropic calls a model, which needs the user's consent and a key. Consent is given in the"
            f" user's own configuration by {CONSENT}. The key is read from that variable or from"
            " ANTHROPIC_API_KEY; an API of the user's own at summarizer_base_url needs none. Otherwise use the"
            " strategy auto."
        )
    found: list[Summarizer] = []
    if strategy in ("auto", "anthropic") and settings is not None and reachable:
        from contextstash.writers.anthropic import AnthropicSummarizer

        found.append(AnthropicSummarizer(settings))
    return found


async def write_summary(request: SummaryRequest, writers: Sequence[Summarizer]) -> WrittenSummary:
    """The summary of the first summarizer that succeeds. The note says which failed and why; the calls are of all.

    Raises the error of the last summarizer if all fail.
    """
    calls: list[WriterCall] = []
    failed: list[str] = []
    for place, writer in enumerate(writers):
        try:
            written = await writer.write(request)
        except SummarizerError as error:
            logger.warning("the summarizer %s failed: %s", writer.strategy, error)
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
    raise SummarizerError("No summarizer available.")


def content_key(request: SummaryRequest, strategy: str, model: str | None) -> str:
    """A digest of everything that determines a summary: the same session, instructions and summarizer have the same."""
    digest = hashlib.sha256()
    head = [strategy, model, request.prompt, request.instructions, request.max_tokens, request.previous]
    digest.update(json.dumps([*head, request.replaces]).encode())
    for turn in request.turns:
        for text in (turn.role, *turn.texts):
            digest.update(text.encode("utf-8", "surrogatepass"))
            digest.update(b"\0")
    return digest.hexdigest()
