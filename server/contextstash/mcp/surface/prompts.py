"""Prompts: what a user picks from a menu to compact a session, see its state, or hand it off."""

from __future__ import annotations

from typing import Annotated

from mcp.server import MCPServer
from pydantic import Field

from contextstash.mcp.lazy_stash import LazyStash
from contextstash.mcp.sendable import clipped, sendable_text
from contextstash.mcp.surface.error_texts import protocol_errors
from contextstash.results import Estimate, SummaryResult
from contextstash.view.summary_text import compaction_prompt
from contextstash_storage.errors import NotFoundError

PROMPTS: dict[str, tuple[str, ...]] = {
    "compact": ("session_id", "instructions"),
    "context_status": ("session_id",),
    "handoff": ("session_id",),
}
"""Argument names by prompt."""

MAX_HANDOFF_CHARACTERS = 24_000
"""Longest summary in the prompt, about 6,000 tokens, as in the answer of compact_session."""

Session = Annotated[str | None, Field(description="Which session; the current one if left out")]


def add_prompts(server: MCPServer[None], stash: LazyStash) -> None:
    """Register the prompts."""
    texts = PromptTexts(stash)
    server.prompt(
        "compact",
        title="Compact this session",
        description="Write a hand-off summary and replace the older messages by it.",
    )(texts.compact)
    server.prompt(
        "context_status",
        title="Context status",
        description="How full the context window is, with what, and what to do next.",
    )(texts.context_status)
    server.prompt(
        "handoff",
        title="Hand-off",
        description="The summary of a session, to continue it in a new window.",
    )(texts.handoff)


class PromptTexts:
    """The text of each prompt."""

    def __init__(self, stash: LazyStash) -> None:
        self._stash = stash

    async def compact(
        self,
        session_id: Session = None,
        instructions: Annotated[str | None, Field(description="What the summary must keep or leave out")] = None,
    ) -> str:
        return sendable_text(compaction_prompt(session_id=session_id, instructions=instructions))

    async def context_status(self, session_id: Session = None) -> str:
        with protocol_errors("The prompt"):
            stash = await self._stash.get()
            return sendable_text(status_text(await stash.estimate_context(session_id)))

    async def handoff(self, session_id: Session = None) -> str:
        with protocol_errors("The prompt"):
            stash = await self._stash.get()
            session_id = (await stash.estimate_context(session_id)).session_id
            try:
                return sendable_text(handoff_text(await stash.get_summary(session_id)))
            except NotFoundError:
                text = f"Session {session_id} has no summary yet: use the prompt compact there first."
                raise NotFoundError(text) from None


def status_text(estimate: Estimate) -> str:
    """The estimate as a readable table, and the request to the model."""
    parts = sorted(estimate.breakdown.items(), key=lambda part: -part[1])
    rows = "\n".join(f"| {name} | {tokens:,} |" for name, tokens in parts)
    return (
        f"Context of session {estimate.session_id}: {estimate.tokens:,} of {estimate.usable:,} usable tokens"
        f" ({estimate.percent} %), level {estimate.level}, estimated by {estimate.method}.\n\n"
        f"| part | tokens |\n| --- | ---: |\n{rows}\n\n{estimate.next_step}\n\n"
        "Tell me this in two or three sentences, and what you suggest."
    )


def handoff_text(summary: SummaryResult) -> str:
    """A summary as the first message of a new window."""
    text = clipped(summary.summary, MAX_HANDOFF_CHARACTERS, "get_summary and search_history have it")
    covered = f"messages {summary.first_seq} to {summary.last_seq}"
    return (
        f"This continues session {summary.session_id}, whose {covered} are summarized here:\n\n{text}\n\n"
        f'Everything else is still stored: search_history (session_id "{summary.session_id}") finds it,'
        " get_archived_output reads tool outputs. Continue with the next step named above."
    )
