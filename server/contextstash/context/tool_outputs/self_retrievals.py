"""Own retrievals: outputs that are pages of the archive already, which are never cut or archived again."""

from __future__ import annotations

import re

_TOOL = re.compile(
    r"(?:.*[._/:-])?get_archived_output|(?:.*contextstash[\w./:-]*[._/:-])(?:search_history|get_summary)", re.IGNORECASE
)
"""However a client writes our tools' names, such as `mcp__contextstash__get_archived_output`."""

_COMMAND = re.compile(r"\s*contextstash (?:show|search)\b[^|;&<>\n]*")


def is_own_retrieval(tool: str | None, argument: str | None = None) -> bool:
    """Whether an output came from our own tools, by its tool's name, or from our own command alone, by the tool's main
    argument. What an output says of itself is not asked: it could be forged."""
    if tool and _TOOL.fullmatch(tool):
        return True
    return bool(argument and _COMMAND.fullmatch(argument))
