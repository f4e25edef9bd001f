"""Codex CLI's hooks. Source: the schemas and event handlers of its `hooks` crate, and version 0.169 as it ran.

It cuts an output at some 10,000 tokens before its hooks see it: that is what is archived. It offers no field for
another output; a decision `block` with a reason puts the reason in the place of the output, and the turn goes on.
"""

from __future__ import annotations

from typing import Any

from contextstash.hosts.hooks.host import HookHost


def texts_of(_: str, response: Any) -> list[str]:
    """A shell's output is a text, that of an MCP tool a result with content blocks."""
    if isinstance(response, str):
        return [response]
    blocks = response.get("content") if isinstance(response, dict) else response
    if not isinstance(blocks, list) or not all(_is_text(block) for block in blocks):
        return []  # what is not text could not be kept beside the reason
    if isinstance(response, dict) and (response.get("isError") or response.get("is_error")):
        return []
    return [block["text"] for block in blocks]


def replacement(_: str, __: Any, texts: list[str]) -> dict[str, Any]:
    """The texts as the reason of a block, which the model sees in the place of the output."""
    return {"decision": "block", "reason": "\n".join(texts)}


def _is_text(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)


HOST = HookHost(
    name="codex",
    after_tool="PostToolUse",
    before_compaction="PreCompact",
    read_to_its_end=("SessionEnd", "SubagentStop", "Stop"),
    mcp_prefix="mcp__",
    texts_of=texts_of,
    replacement=replacement,
)
