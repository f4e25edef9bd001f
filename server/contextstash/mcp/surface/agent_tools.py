"""The tools that a model uses: estimate the window, shrink it, and retrieve what was removed from it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from contextstash.mcp.lazy import LazyStash
from contextstash.mcp.surface import result_lines as lines
from contextstash.mcp.surface.arguments import DryRun, Messages, SessionId
from contextstash.mcp.surface.compact_session import MAX_SUMMARY_CHARACTERS, compact_session_of
from contextstash.mcp.surface.tool import StashTool
from contextstash.mcp.wire.sendable import clipped
from contextstash.service.results import (
    Estimate,
    OutputPage,
    PruneResult,
    RestoreResult,
    SearchResult,
    SummaryResult,
)

MAX_RESTORED_LISTED = 100
"""Handles that one answer lists at most, some 1,000 tokens; a guess, as nobody restores that many one by one."""


class AgentTools:
    """The functions of the tools, on a stash that is opened at first use."""

    def __init__(self, stash: LazyStash) -> None:
        self._stash = stash

    async def estimate_context(
        self,
        session_id: SessionId = None,
        messages: Annotated[
            Messages | None, Field(description="Estimate these messages instead (provider's JSON)")
        ] = None,
        model: Annotated[str | None, Field(description="Model whose window to use")] = None,
    ) -> Estimate:
        stash = await self._stash.get()
        return await stash.estimate_context(session_id, messages=messages, model=model)

    async def prune_tool_outputs(
        self,
        session_id: SessionId = None,
        keep_last: Annotated[int | None, Field(description="How many newest outputs to keep")] = None,
        protect_tokens: Annotated[int | None, Field(description="How many tokens of newest outputs to keep")] = None,
        minimum_tokens: Annotated[int | None, Field(description="Do nothing if it saves less")] = None,
        dry_run: DryRun = False,
    ) -> PruneResult:
        stash = await self._stash.get()
        return await stash.prune_tool_outputs(
            session_id,
            keep_last=keep_last,
            protect_tokens=protect_tokens,
            minimum_tokens=minimum_tokens,
            dry_run=dry_run,
        )

    async def get_summary(
        self,
        session_id: SessionId = None,
        level: Annotated[str | None, Field(description="recent, medium, long or an id (sum_...); default: all")] = None,
    ) -> SummaryResult:
        stash = await self._stash.get()
        result = await stash.get_summary(session_id, level=level)
        rest = f"resource context://sessions/{result.session_id}/summary"
        return result.model_copy(update={"summary": clipped(result.summary, MAX_SUMMARY_CHARACTERS, rest)})

    async def get_archived_output(
        self,
        handle: Annotated[str, Field(description="Handle (out_...) from a placeholder or search hit")],
        session_id: Annotated[str | None, Field(description="Default: any")] = None,
        offset: Annotated[int | None, Field(description="First line, from 1")] = None,
        limit: Annotated[int | None, Field(description="Number of lines")] = None,
        pattern: Annotated[str | None, Field(description="Regular expression: only lines that match")] = None,
        max_tokens: Annotated[int | None, Field(description="Default 4000, at most 8000")] = None,
    ) -> OutputPage:
        stash = await self._stash.get()
        return await stash.get_archived_output(
            handle, session_id=session_id, offset=offset, limit=limit, pattern=pattern, max_tokens=max_tokens
        )

    async def search_history(
        self,
        query: Annotated[str, Field(description="Words, names or paths")],
        session_id: SessionId = None,
        limit: Annotated[int | None, Field(description="Default 10, at most 50")] = None,
        scope: Annotated[
            Literal["session", "outputs", "messages", "project", "everywhere"],
            Field(description="Sessions; or only outputs or messages of this one"),
        ] = "session",
        tool: Annotated[str | None, Field(description="Only its calls")] = None,
        since: Annotated[str | None, Field(description="ISO time")] = None,
        until: Annotated[str | None, Field(description="ISO time")] = None,
    ) -> SearchResult:
        stash = await self._stash.get()
        return await stash.search_history(
            query, session_id=session_id, limit=limit, scope=scope, tool=tool, since=since, until=until
        )

    async def restore_outputs(
        self,
        handles: Annotated[list[str], Field(description="Handles of outputs (out_...) or summaries (sum_...)")],
        session_id: SessionId = None,
    ) -> RestoreResult:
        stash = await self._stash.get()
        result = await stash.restore_outputs(handles, session_id=session_id)
        unknown = result.not_archived[:MAX_RESTORED_LISTED] if result.not_archived else None
        return result.model_copy(update={"restored": result.restored[:MAX_RESTORED_LISTED], "not_archived": unknown})


def agent_tools(stash: LazyStash) -> list[StashTool]:
    """The tools of `--tools agent`, in the order in which a session uses them."""
    tools = AgentTools(stash)
    return [*_reduction_tools(tools, stash), *_retrieval_tools(tools)]


def _reduction_tools(tools: AgentTools, stash: LazyStash) -> list[StashTool]:
    return [
        StashTool.of(
            tools.estimate_context,
            title="Estimate context",
            description="How full the context window is and what to do next. Call before long work.",
            line=lines.estimate,
            read_only=True,
            idempotent=True,
        ),
        StashTool.of(
            tools.prune_tool_outputs,
            title="Prune tool outputs",
            description="Shrink the context: replace old tool outputs by short placeholders. Use at level prune."
            " Reversible.",
            line=lines.prune,
            idempotent=True,
        ),
        StashTool.of(
            compact_session_of(stash),
            title="Compact session",
            description="Shrink the context: replace all but the recent messages by a summary, preferably one that you"
            " write. Use at level compact or above. Reversible.",
            line=lines.compact,
        ),
    ]


def _retrieval_tools(tools: AgentTools) -> list[StashTool]:
    return [
        StashTool.of(
            tools.get_summary,
            title="Get summary",
            description="The summary of the session's older messages. Use after a compaction or to resume.",
            line=lines.summary,
            read_only=True,
            idempotent=True,
        ),
        StashTool.of(
            tools.get_archived_output,
            title="Get archived output",
            description="Read a pruned tool output word for word, in pages. Use instead of running the tool again.",
            line=lines.output,
            text=lines.output_page,
            read_only=True,
            idempotent=True,
        ),
        StashTool.of(
            tools.search_history,
            title="Search history",
            description="Search the session's whole history, including what was pruned or compacted.",
            line=lines.search,
            read_only=True,
            idempotent=True,
        ),
        StashTool.of(
            tools.restore_outputs,
            title="Restore outputs",
            description="Undo a prune or compaction: put the originals back into the context.",
            line=lines.restore,
            idempotent=True,
        ),
    ]
