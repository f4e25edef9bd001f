"""Claude Code's hooks. Source: its documentation of hooks, and its versions 2.1.x as they ran."""

from __future__ import annotations

from typing import Any

from contextstash.hosts.hooks.host import HookHost
from contextstash.hosts.hooks.claude_code_responses import MCP_PREFIX, texts_of, with_texts


def replacement(tool: str, response: Any, texts: list[str]) -> dict[str, Any]:
    """The response in its own shape with other texts."""
    output = {"hookEventName": "PostToolUse", "updatedToolOutput": with_texts(tool, response, texts)}
    return {"hookSpecificOutput": output}


HOST = HookHost(
    name="claude-code",
    after_tool="PostToolUse",
    before_compaction="PreCompact",
    read_to_its_end=("SessionEnd", "SubagentStop", "Stop"),
    mcp_prefix=MCP_PREFIX,
    texts_of=texts_of,
    replacement=replacement,
    # It cuts most outputs at 30,000 by itself. What was read of a file is to be worked with: cut only if very long.
    limits={"Read": 40_000},
)
