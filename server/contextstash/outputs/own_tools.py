"""Our own tools' calls and results, by whatever name a client gives them: they quote the session and add nothing."""

from __future__ import annotations

import re

OWN_TOOLS = (
    "compact_session", "configure_session", "context_status", "delete_session", "estimate_context",
    "get_archived_output", "get_context", "get_summary", "list_sessions", "prune_tool_outputs", "record_messages",
    "recover_context", "restore_outputs", "search_history",
)  # fmt: skip

RETRIEVALS = frozenset({"get_archived_output", "get_summary", "search_history"})
"""Those whose results quote the archive: they are never cut or archived again."""

MAX_TOOL_NAME = 300
"""Characters; providers take at most 128. A longer name is never ours: for one of 50,000 characters the pattern takes
four seconds."""

_COMMAND = re.compile(r"\s*contextstash (?:show|search)\b[^|;&<>\n]*")

_DISTINCT = ("estimate_context", "get_archived_output", "prune_tool_outputs", "restore_outputs")
"""Names that no other server is known to use; the others count only if the name of our server precedes them."""

_SERVER = re.compile(r"(?:.*[._/:-])?contextstash(?:[._-]?(?:gateway|server|mcp))?[._/:-]*")
"""Clients write `mcp__contextstash__search_history` (Claude Code, Codex), `mcp__plugin_contextstash_contextstash__…`
(its plugins), `contextstash_search_history` (OpenCode), `mcp_contextstash_search_history` (VS Code, Cursor),
`contextstash.search_history` and the like. Nothing else may stand between the server's name and the tool's: our gateway
offers the tools of other servers as `contextstash__github_get_summary`.
"""


def is_own_call(tool: str | None, argument: str | None = None) -> bool:
    """Whether a call is one of our own tools, by its name, or our own command that reads the archive and no other, by
    its main argument. The texts of call and result are not considered: any tool could forge them."""
    return own_tool(tool) is not None or _is_own_command(argument)


def is_own_retrieval(tool: str | None, argument: str | None = None) -> bool:
    """The same of calls that read the archive."""
    return own_tool(tool) in RETRIEVALS or _is_own_command(argument)


def _is_own_command(argument: str | None) -> bool:
    return bool(argument and _COMMAND.fullmatch(argument))


def own_tool(name: str | None) -> str | None:
    """Which of our tools a client means by this name; None if it is another's."""
    lowered = name.lower() if name and len(name) <= MAX_TOOL_NAME else ""
    own = next((each for each in OWN_TOOLS if lowered.endswith(each)), None)
    if own is None:
        return None
    before = lowered.removesuffix(own)
    is_distinct = own in _DISTINCT and (not before or before[-1] in "._/:-")
    return own if is_distinct or _SERVER.fullmatch(before) else None
