"""Self-retrievals: outputs of our own tools, which quote the archive and so are never cut or archived again."""

from __future__ import annotations

import re

_TOOL = re.compile(
    r"(?:.*[._/:-])?get_archived_output|(?:.*contextstash[\w./:-]*[._/:-])(?:search_history|get_summary)"
    r"|c[\w-]{5}0mcp0(?:get_archived_output|search_history)",
    re.IGNORECASE,
)
"""Our tools' names with any prefix that a client adds, such as `mcp__contextstash__get_archived_output`. The names of
the other tools are common, so that for them the prefix must name contextstash; but Cline writes a random key of six
characters instead of the server's name (`McpHub.getMcpServerKey` in cline/cline)."""

MAX_TOOL_NAME = 300
"""Characters; providers take at most 128. A longer name is never ours: for one of 50,000 characters the pattern takes
four seconds."""

_COMMAND = re.compile(r"\s*contextstash (?:show|search)\b[^|;&<>\n]*")


def is_own_retrieval(tool: str | None, argument: str | None = None) -> bool:
    """Whether an output came from one of our own tools, by the tool's name, or from our own command and no other, by
    the tool's main argument. The output's text is not considered: any tool could forge it."""
    if tool and len(tool) <= MAX_TOOL_NAME and _TOOL.fullmatch(tool):
        return True
    return bool(argument and _COMMAND.fullmatch(argument))
