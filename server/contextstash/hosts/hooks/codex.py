"""Codex CLI's hooks. Source: the schemas and event handlers of its `hooks` crate, and version 0.169 as it ran.

Codex cuts an output at about 10,000 tokens before its hooks see it: the cut output is what is archived. No field of a
hook's response replaces the output. A decision `block` with a reason shows the reason in its place, and the turn goes
on.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from contextstash.hosts.hooks.host import HookHost


def texts_of(_: str, response: Any) -> list[str]:
    """The texts that the model would see: a shell's output is a string, that of an MCP tool a result with blocks."""
    if isinstance(response, str):
        return [response]
    blocks = response.get("content") if isinstance(response, dict) else response
    if not isinstance(blocks, list) or not all(_is_text(block) for block in blocks):
        return []  # the reason is text only: images and the like would be lost
    if isinstance(response, dict) and (response.get("isError") or response.get("is_error")):
        return []
    return [block["text"] for block in blocks]


def replacement(_: str, __: Any, texts: list[str]) -> dict[str, Any]:
    """The hook's response: the texts as the reason of a block, which the model sees in place of the output."""
    return {"decision": "block", "reason": "\n".join(texts)}


def _is_text(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)


def _own_folders(home: Path) -> Sequence[Path]:
    from contextstash.hosts.readers.codex import sessions_folder

    sessions = sessions_folder(home)
    return [sessions, sessions.with_name("archived_sessions")]


def _is_of_same_project(transcript: Path, _: Path, folder: str | None) -> bool:
    """Codex keeps a folder for each day, not for each project; a rollout's first line names its project's folder."""
    from contextstash.hosts.readers.codex import is_rollout_of

    return transcript.name.startswith("rollout-") and folder is not None and is_rollout_of(transcript, Path(folder))


HOST = HookHost(
    name="codex",
    after_tool="PostToolUse",
    before_compaction="PreCompact",
    read_to_its_end=("SessionEnd", "SubagentStop", "Stop"),
    mcp_prefix="mcp__",
    texts_of=texts_of,
    replacement=replacement,
    # More than 10,000 characters of one hook are cut to their head and tail (its default `additionalContextLimit`).
    context_limit=9_800,
    own_folders=_own_folders,
    is_of_same_project=_is_of_same_project,
)
