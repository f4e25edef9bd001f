"""Our own tools' calls and results, by whatever name a client gives them: they quote the session and add nothing."""

from __future__ import annotations

import re
from functools import cache

from contextstash.context.tool_outputs.self_retrievals import is_own_retrieval

OWN_TOOLS = frozenset(
    {
        "compact_session",
        "configure_session",
        "context_status",
        "delete_session",
        "estimate_context",
        "get_archived_output",
        "get_context",
        "get_summary",
        "list_sessions",
        "prune_tool_outputs",
        "record_messages",
        "recover_context",
        "restore_outputs",
        "search_history",
    }
)

_DISTINCT = ("estimate_context", "get_archived_output", "prune_tool_outputs", "restore_outputs")
"""Names that no other server is known to use; the others count only if the name of our server precedes them."""

_LIKELY = (*_DISTINCT, "compact_session", "context_status", "search_history")
"""Names that are ours in a client that names tools without their servers: it has our server, and others are unlikely to
use them."""

_TOOL = (
    rf"(?:.*[._/:-])?(?:{'|'.join(_DISTINCT)})"
    rf"|c[\w-]{{5}}0mcp0(?:{'|'.join(_LIKELY)})"
    rf"|(?:.*[._/:-])?contextstash(?:[._-]?(?:gateway|server|mcp))?[._/:-]*(?:{'|'.join(sorted(OWN_TOOLS))})"
)
"""Clients write `mcp__contextstash__search_history` (Claude Code, Codex), `mcp__plugin_contextstash_contextstash__…`
(its plugins), `contextstash_search_history` (OpenCode), `mcp_contextstash_search_history` (VS Code, Cursor),
`contextstash.search_history` and the like; Roo Code `mcp--contextstash--search_history`; Cline a random key of six
characters, `cAb3dE0mcp0search_history`, or `use_mcp_tool` (formats/relayed_calls.py). Nothing else may stand between
the server's name and the tool's: our gateway offers the tools of other servers as `contextstash__github_get_summary`.
"""


def is_own_call(tool: str | None, argument: str | None = None) -> bool:
    """Whether a call is one of our own tools, by its name, or our own command that reads the archive, by its main
    argument. The texts of call and result are not considered: any tool could forge them."""
    return bool(tool and _is_own_name(tool)) or is_own_retrieval(tool, argument)


def _is_own_name(tool: str) -> bool:
    lowered = tool.lower()
    return any(name in lowered for name in OWN_TOOLS) and _pattern().fullmatch(tool) is not None


@cache
def _pattern() -> re.Pattern[str]:
    """Compiled when it is needed: that takes 8 ms, and a client's hook, for which it waits, hardly ever needs it."""
    return re.compile(_TOOL, re.IGNORECASE)
