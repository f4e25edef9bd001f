"""Who writes a summary: the host, a model, or contextstash from the session's state; and what the models cost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from contextstash.safety.sanitize import encodable
from contextstash.session.access import Access
from contextstash.session.masks import shown_text
from contextstash.view.session_snapshot import SessionSnapshot
from contextstash.writers.base import (
    CONSENT,
    EXTRACTIVE,
    MIN_CHARACTERS,
    SummaryRequest,
    WriterCall,
    WriterFailedError,
    WriterSettings,
    WrittenSummary,
)
from contextstash_storage.errors import BadInputError
from contextstash_storage.records import Call, Usage

HOST, MODEL = "host", "anthropic"
"""Who writes, if it is not the session's state."""

STRATEGIES = ("auto", HOST, MODEL, EXTRACTIVE)

MAX_HOST_TOKENS = 20_000
"""A longer text is not a summary: ten times a usual one, a tenth of a window of 200,000."""

NOTHING_USED = Usage(prompt_tokens=0)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Asked:
    """What a compaction was asked for: who writes the summary, the host's own text, the user's instructions."""

    strategy: str = "auto"
    summary: str | None = None
    instructions: str | None = None

    def model(self, access: Access, snapshot: SessionSnapshot) -> WriterSettings | None:
        """The model that writes; None if the host or the session's state does. Raises BadInputError if the strategy
        cannot be used, or if the host's text is no summary."""
        strategy, text = self.strategy, self.summary
        if strategy not in STRATEGIES:
            raise BadInputError(f"Unknown strategy '{strategy[:40]}'. Pass one of {', '.join(STRATEGIES)}.")
        if text is not None and strategy not in ("auto", HOST):
            raise BadInputError(
                f"Pass either a summary or the strategy {strategy}: a passed summary is used unchanged."
            )
        if text is not None and len(encodable(text).strip()) < MIN_CHARACTERS:
            raise BadInputError(
                "summary is empty or too short to continue from. Pass the whole hand-off text, or omit it to get an"
                " extractive summary; the prompt compact describes what a summary must contain."
            )
        if text is None and strategy == HOST:
            raise BadInputError(
                "The strategy host needs `summary`: write one as the prompt compact describes and pass it,"
                " or use the strategy auto."
            )
        wanted = snapshot.settings.summarizer if strategy == "auto" else strategy
        model = writer_model(access, snapshot) if text is None and wanted != EXTRACTIVE else None
        if model is None and strategy == MODEL:
            raise BadInputError(
                "The strategy anthropic calls a model, which needs the user's consent and a key. Consent is given in"
                f" the user's own configuration by {CONSENT}. The key is read from that variable or from"
                " ANTHROPIC_API_KEY; an API of the user's own at summarizer_base_url needs none. Otherwise use the"
                " strategy auto."
            )
        return model


def writer_model(access: Access, snapshot: SessionSnapshot) -> WriterSettings | None:
    """The model that writes for a session; None if the user has not agreed to calls, or if there is no way to one."""
    settings = snapshot.settings
    if not access.reaches_model(snapshot.session.agent, settings):
        return None
    return WriterSettings(
        model=settings.summarizer_model,
        api_key=access.api_key,
        base_url=settings.summarizer_base_url,
        output_chars=settings.summarizer_output_chars,
    )


async def written(
    snapshot: SessionSnapshot, asked: Asked, model: WriterSettings | None, request: SummaryRequest
) -> WrittenSummary:
    """The host's text as it was passed, else the model's, else one made of the state, with a note if the model
    failed; without secrets. Raises BadInputError if the host's text is too long to be a summary."""
    summary = _of_host(asked.summary, request) if asked.summary is not None else await _of_model(request, model)
    return replace(summary, text=shown_text(snapshot.settings, summary.text))


def _of_host(summary: str, request: SummaryRequest) -> WrittenSummary:
    text = encodable(summary).strip()
    tokens = request.count(text)
    if tokens > MAX_HOST_TOKENS:
        raise BadInputError(
            f"summary has {tokens:,} tokens; at most {MAX_HOST_TOKENS:,} are accepted. Shorten it to what is needed"
            " to continue."
        )
    return WrittenSummary(text, HOST)


async def _of_model(request: SummaryRequest, model: WriterSettings | None) -> WrittenSummary:
    calls, note = tuple[WriterCall, ...](), None
    if model is not None:
        from contextstash.writers.anthropic import summary_by_model

        try:
            return await summary_by_model(model, request)
        except WriterFailedError as error:
            logger.warning("the model that writes summaries failed: %s", error)
            calls, note = error.calls, f"{MODEL} could not write the summary: {error}"
    return WrittenSummary(await asyncio.to_thread(request.extract), EXTRACTIVE, calls=calls, note=note)


async def log_calls(
    access: Access,
    snapshot: SessionSnapshot,
    calls: Sequence[WriterCall],
    span: tuple[int, int],
    purpose: Literal["summary", "digest"] = "summary",
) -> None:
    """Log calls of a model about the messages `span`, with their cost if the price is known."""
    if not calls:
        return
    from contextstash.window.models import price_of

    for call in calls:
        logged = Call(
            purpose=purpose,
            model=call.model,
            request_seq=span[1],
            **(call.usage or NOTHING_USED).model_dump(),
            cost=price_of(call.model, call.usage) if call.usage else 0.0,
            duration_ms=call.duration_ms,
            error=call.error,
        )
        await access.store.append_log(snapshot.session_id, logged)
