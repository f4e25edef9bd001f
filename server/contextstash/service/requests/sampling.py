"""Sampling: the request for a summary by the client's own model, if the client supports MCP sampling."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from contextstash.context.view.compaction_plan import keep_limits, plan_compaction
from contextstash.context.window.settings import ContextSettings
from contextstash.service.reduction.compact import summary_request
from contextstash.service.reduction.summary_request import covered_turns
from contextstash.service.session_access import Access
from contextstash.service.view_reader import WITHIN_REACH
from contextstash.summarizers.sampling import SamplingRequest, sampling_prompt


async def sampling_request(
    access: Access, session_id: str | None = None, *, instructions: str | None = None, strategy: str = "sampling"
) -> SamplingRequest | None:
    """The request for a summary of the messages that a compaction would cover now; None if there is nothing to compact,
    or if another summarizer comes first."""
    snapshot = await access.snapshot(session_id, WITHIN_REACH)
    if strategy == "auto" and not _comes_first(access, snapshot.session.agent, snapshot.settings):
        return None
    plan = plan_compaction(snapshot.entries, keep_limits(snapshot), snapshot.outputs)
    if not plan.covered:
        return None
    plan = replace(plan, beyond=snapshot.beyond)
    turns = await covered_turns(access, snapshot, plan)
    request = summary_request(snapshot, plan, turns, instructions)
    return await asyncio.to_thread(sampling_prompt, request, snapshot.settings.summarizer_output_chars)


def _comes_first(access: Access, agent: str | None, settings: ContextSettings) -> bool:
    """Whether `auto` tries the client's model before any other summarizer."""
    if settings.summarizer == "auto":
        return not access.reaches_model(agent, settings)
    return settings.summarizer == "sampling"
