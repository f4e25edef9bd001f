"""The tools that a model uses: estimate the window, shrink it, and retrieve what was removed from it.

Each function declares a tool, and the stash's method of its name carries it out: the docstring is its description.
"""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from contextstash.mcp.lazy_stash import LazyStash
from contextstash.mcp.sendable import clipped
from contextstash.mcp.surface import result_lines as lines
from contextstash.mcp.surface.argument_types import DryRun, Messages, SessionId
from contextstash.mcp.surface.compact_session import MAX_SUMMARY_CHARACTERS, compact_session_of
from contextstash.mcp.surface.tool import StashTool, declared
from contextstash.results import Estimate, OutputPage, PruneResult, RestoreResult, SearchResult, SummaryResult

if TYPE_CHECKING:
    from contextstash.stash import Stash

MAX_RESTORED_LISTED = 100
"""Handles that one answer lists, some 1,000 tokens. Those beyond are restored too, and not named."""


@declared("Estimate context", lines.estimate, read_only=True)
async def estimate_context(
    session_id: SessionId = None,
    messages: Annotated[Messages | None, Field(description="Estimate these messages instead (provider's JSON)")] = None,
    model: Annotated[str | None, Field(description="Model whose window to use")] = None,
) -> Estimate:
    """How full the context window is and what to do next. Call before long work."""


@declared("Prune tool outputs", lines.prune)
async def prune_tool_outputs(
    session_id: SessionId = None,
    keep_last: Annotated[int | None, Field(description="How many newest outputs to keep")] = None,
    protect_tokens: Annotated[int | None, Field(description="How many tokens of newest outputs to keep")] = None,
    minimum_tokens: Annotated[int | None, Field(description="Do nothing if it saves less")] = None,
    dry_run: DryRun = False,
) -> PruneResult:
    """Shrink the context: replace old tool outputs by short placeholders. Use at level prune. Reversible."""


async def _summary(stash: Stash, **arguments: Any) -> SummaryResult:
    result = await stash.get_summary(**arguments)
    rest = f"resource context://sessions/{result.session_id}/summary"
    return result.model_copy(update={"summary": clipped(result.summary, MAX_SUMMARY_CHARACTERS, rest)})


@declared("Get summary", lines.summary, read_only=True, call=_summary)
async def get_summary(
    session_id: SessionId = None,
    level: Annotated[str | None, Field(description="recent (the newest) or an id (sum_...); default: all")] = None,
) -> SummaryResult:
    """The summary of the session's older messages. Use after a compaction or to resume."""


@declared("Get archived output", lines.output, text=lines.output_page, read_only=True)
async def get_archived_output(
    handle: Annotated[str, Field(description="Handle (out_...) from a placeholder or search hit")],
    session_id: Annotated[str | None, Field(description="Default: any")] = None,
    offset: Annotated[int | None, Field(description="First line, from 1")] = None,
    limit: Annotated[int | None, Field(description="Lines")] = None,
    pattern: Annotated[str | None, Field(description="Regular expression: only lines that match")] = None,
    max_tokens: Annotated[int | None, Field(description="Default 4000, at most 8000")] = None,
) -> OutputPage:
    """Read a pruned tool output word for word, in pages. Use instead of running the tool again."""


@declared("Search history", lines.search, read_only=True)
async def search_history(
    query: Annotated[str, Field(description="Words, names or paths")],
    session_id: SessionId = None,
    limit: Annotated[int | None, Field(description="Default 10, at most 50")] = None,
    scope: Annotated[
        Literal["session", "outputs", "messages", "project", "everywhere"],
        Field(description="Sessions; or outputs or messages of this one"),
    ] = "session",
    tool: Annotated[str | None, Field(description="Its calls")] = None,
    since: Annotated[str | None, Field(description="ISO time")] = None,
    until: Annotated[str | None, Field(description="ISO time")] = None,
) -> SearchResult:
    """Search the session's whole history, including what was pruned or compacted."""


async def _restored(stash: Stash, **arguments: Any) -> RestoreResult:
    result = await stash.restore_outputs(**arguments)
    unknown = result.not_archived[:MAX_RESTORED_LISTED] if result.not_archived else None
    return result.model_copy(update={"restored": result.restored[:MAX_RESTORED_LISTED], "not_archived": unknown})


@declared("Restore outputs", lines.restore, call=_restored)
async def restore_outputs(
    handles: Annotated[list[str], Field(description="Handles of outputs (out_...) or summaries (sum_...)")],
    session_id: SessionId = None,
) -> RestoreResult:
    """Undo a prune or compaction: put the originals back into the context."""


def agent_tools(stash: LazyStash) -> list[StashTool]:
    """The tools of `--tools agent`, in the order in which a session uses them."""
    compact_session = declared("Compact session", lines.compact, idempotent=False)(compact_session_of(stash))
    retrieving = (get_summary, get_archived_output, search_history, restore_outputs)
    return [
        estimate_context.on(stash),
        prune_tool_outputs.on(stash),
        compact_session.tool(),
        *(tool.on(stash) for tool in retrieving),
    ]
