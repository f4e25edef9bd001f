"""Claude Code's hooks. Source: its documentation of hooks (code.claude.com/docs/en/hooks), and its versions 2.1.x as
they ran."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from contextstash.hosts.hooks.claude_code_responses import (
    MCP_PREFIX,
    persisted_output,
    texts_of,
    with_texts,
)
from contextstash.hosts.hooks.host import HookHost


def replacement(tool: str, response: Any, texts: list[str]) -> dict[str, Any]:
    """The hook's response that replaces the texts of a tool's response and keeps its shape."""
    output = {"hookEventName": "PostToolUse", "updatedToolOutput": with_texts(tool, response, texts)}
    return {"hookSpecificOutput": output}


def _own_folders(home: Path) -> Sequence[Path]:
    from contextstash.hosts.readers.claude_code import projects_folder

    return [projects_folder(home)]


def _sub_agents(transcript: Path) -> Sequence[Path]:
    from contextstash.hosts.readers.claude_code import agent_transcripts

    return agent_transcripts(transcript)


def _compacted(transcript: Path, sub_agents: Sequence[Path]) -> Path | None:
    from contextstash.hosts.hooks.claude_code_compaction import compacted_transcript

    return compacted_transcript(transcript, sub_agents)


HOST = HookHost(
    name="claude-code",
    after_tool="PostToolUse",
    before_compaction="PreCompact",
    read_to_its_end=("SessionEnd", "SubagentStop", "Stop"),
    mcp_prefix=MCP_PREFIX,
    texts_of=texts_of,
    replacement=replacement,
    # Claude Code itself cuts most outputs at 30,000 characters. A file is read to be worked with, so it is cut only if
    # it is very long: above 40,000 characters, about 1,000 lines.
    limits={"Read": 40_000},
    cut_at_end=frozenset({"Read"}),
    # Of a Bash output above 30,000 characters Claude Code 2.1 shows the first 2,000 and the path of its file.
    preview_limit=2_000,
    # Of more than 10,000 characters that one hook adds, 2.1.197 keeps all in a file and shows the first 2,000 bytes.
    context_limit=9_800,
    own_folders=_own_folders,
    persisted_output=persisted_output,
    sub_agents=_sub_agents,
    compacted=_compacted,
)
