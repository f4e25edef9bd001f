"""Calls of summarizing models: their configuration from a session's settings, and the log of tokens and cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from contextstash.session.access import Access
from contextstash.view.session_snapshot import SessionSnapshot
from contextstash.window.settings import ContextSettings
from contextstash.writers.base import WriterCall, WriterSettings
from contextstash_storage.records import Call, Usage

NOTHING_USED = Usage(prompt_tokens=0)


def writer_settings(access: Access, agent: str | None, settings: ContextSettings) -> WriterSettings | None:
    """The configuration of the model that writes for an agent's session; None if the user has not agreed to calls."""
    if not access.may_call_model(agent):
        return None
    return WriterSettings(
        model=settings.summarizer_model,
        api_key=access.api_key,
        base_url=settings.summarizer_base_url,
        output_chars=settings.summarizer_output_chars,
    )


async def log_calls(
    access: Access,
    snapshot: SessionSnapshot,
    calls: Sequence[WriterCall],
    first_seq: int,
    last_seq: int,
    *,
    purpose: Literal["summary", "digest"] = "summary",
) -> float | None:
    """Log calls of a model about messages `first_seq..last_seq`. Returns their total cost in US dollars; None if a
    price is unknown or no call was made."""
    if not calls:
        return None
    from contextstash.configuration.windows_and_prices import price_of

    costs = []
    for call in calls:
        usage = call.usage or NOTHING_USED
        cost = price_of(call.model, usage) if call.usage else 0.0
        costs.append(cost)
        await access.store.append_call(
            snapshot.session_id,
            Call(
                purpose=purpose,
                model=call.model,
                request_first_seq=first_seq,
                request_seq=last_seq,
                request_edits=len(snapshot.edits),
                **usage.model_dump(),
                cost=cost,
                duration_ms=call.duration_ms,
                error=call.error,
            ),
        )
    return None if None in costs else sum(cost for cost in costs if cost is not None)
