"""The tool `context_status`: a picture in clients that show apps (MCP Apps), a table in all others."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from mcp.server.apps import APP_MIME_TYPE, Apps
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.resources import FunctionResource

from contextstash.display import style_sheet
from contextstash.mcp.lazy_stash import LazyStash
from contextstash.mcp.surface.argument_types import SessionId
from contextstash.mcp.surface.tool import StashTool, declared
from contextstash.outputs.counts import before_and_after
from contextstash.queries.proxy_report import report_lines
from contextstash.results import ContextStatus
from contextstash.session_names import whole_id

URI = "ui://contextstash/context-status.html"

BAR_WIDTH = 24
"""Characters of the longest bar: with name and number a line has 52, which fits a narrow terminal."""

MAX_POINTS = 80
"""Points of a session that the page draws: the picture is a few hundred pixels wide."""

LOOK = "/* look.css */"
"""The place in the page for the style that it shares with the browser pages."""

TIMELINE = "contextstash/timeline"
"""The key of the timeline in the result's `_meta`."""


def status_app() -> Apps:
    """The extension as the server declares it, with the page, which is read from its file at the first request."""
    apps = Apps()
    apps.add_resource(
        FunctionResource(
            uri=URI,
            name="context-status",
            title="Context status",
            description="A picture of how full a session's context is.",
            mime_type=APP_MIME_TYPE,
            meta={"ui": {"prefersBorder": True}},
            fn=page,
        )
    )
    return apps


def page() -> str:
    """The page: one document with its style and script, without external resources: clients show it in a sandbox."""
    text = (files("contextstash.mcp") / "app" / "context_status.html").read_text(encoding="utf-8")
    return text.replace(LOOK, style_sheet())


def status_tool(stash: LazyStash) -> StashTool:
    """The tool. Its result is the same for every client; clients without apps show its text."""

    @declared("Context status", status_text, read_only=True, aside=_drawn)
    async def context_status(ctx: Context[Any], session_id: SessionId = None) -> ContextStatus:
        """Show the user a picture of how full the context is, and with what."""
        opened = await stash.get()
        status = await opened.context_status(session_id and await whole_id(opened, session_id))
        return status.model_copy(update={"timeline": await opened.timeline(status.session_id, points=MAX_POINTS)})

    tool = context_status.tool()
    tool.meta = {"ui": {"resourceUri": URI}}
    return tool


def _drawn(status: ContextStatus) -> dict[str, Any]:
    """The data that the page draws in addition to the result."""
    return {TIMELINE: status.timeline.model_dump(mode="json") if status.timeline else None}


def status_text(status: ContextStatus) -> str:
    """The state of the context as text for a terminal."""
    estimate = status.estimate
    lines = [
        f"{estimate.tokens:,} of {estimate.usable:,} usable tokens ({estimate.percent} %), level {estimate.level}",
        *_parts(estimate.breakdown),
        f"{status.messages:,} messages in history, {status.messages_summarized:,} summarized,"
        f" {status.outputs_archived:,} outputs archived",
    ]
    if status.last_summary:
        made = status.last_summary
        lines.append(f"Last summary: {made.messages:,} messages -> {made.tokens:,} tokens, by {made.strategy}")
    if status.proxy:
        lines += report_lines(status.proxy)
    elif status.savings and status.savings.tokens:
        saved = status.savings
        money = f", {saved.cost:.2f} US dollars" if saved.cost else ""
        lines.append(f"Saved so far: {saved.tokens:,} tokens in {saved.requests:,} requests{money}")
    if status.due:
        lines.append(f"Auto-compaction is due: {', '.join(status.due)}")
    if status.changes:
        change = status.changes[0]
        lines.append(
            f"Last change: {change.kind}, {before_and_after(change.tokens_before, change.tokens_after)} tokens"
        )
    return "\n".join([*lines, estimate.next_step])


def _parts(breakdown: dict[str, int]) -> list[str]:
    whole = sum(breakdown.values()) or 1
    parts = sorted(breakdown.items(), key=lambda part: -part[1])
    return [
        f"  {name.replace('_', ' '):<14}{tokens:>10,}  {'█' * max(1, round(BAR_WIDTH * tokens / whole))}"
        for name, tokens in parts
        if tokens
    ]
