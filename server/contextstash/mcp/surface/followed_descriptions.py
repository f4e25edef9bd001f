"""Tool descriptions for a client that sends its own history: the tools change contextstash's view, not its window."""

from __future__ import annotations

from collections.abc import Iterable

from contextstash.mcp.surface.tool import StashTool

DESCRIPTIONS = {
    "prune_tool_outputs": "Changes contextstash's own view only, not your window, unless your client runs behind its"
    " proxy. Archives old tool outputs there.",
    "compact_session": "Changes contextstash's own view only, not your window, unless your client runs behind its"
    " proxy. Keeps your summary for the hand-off after the client compacts.",
    "restore_outputs": "Changes contextstash's own view only, not your window: undoes a prune or compaction there.",
    "get_summary": "The summary of the session's older messages, by the client or by you. Use after a compaction or to"
    " resume.",
    "get_archived_output": "Read a tool output that was cut or compacted away word for word, in pages. Use instead of"
    " running the tool again.",
}

INSTRUCTIONS = """\
contextstash keeps your session's whole history. Your client sends its own history to you, so only the client can \
shrink your window: no tool here does, unless results say that the client runs behind the contextstash proxy.
- Before long work call estimate_context. At level compact or above write a hand-off summary, pass it to \
compact_session, and ask the user to compact in the client; the summary is handed to the new window.
- A placeholder with a handle (out_...) stands for a tool output that is kept in full: get_archived_output reads it, \
by pattern or by lines. Do not run the tool again for it.
- search_history finds earlier messages and outputs, also from before a compaction; get_summary returns the summary."""


def described(tools: Iterable[StashTool]) -> list[StashTool]:
    """The tools with these descriptions."""
    return [tool.model_copy(update={"description": DESCRIPTIONS.get(tool.name, tool.description)}) for tool in tools]
