"""Claude Code's hooks. Source: its documentation of hooks (code.claude.com/docs/en/hooks), and its versions 2.1.x as
they ran.

A replacement must have the tool's own shape, or Claude Code keeps the original: an object with `stdout` for Bash, one
with `file.content` for Read, a list of content blocks for MCP tools.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from contextstash.hosts.hooks.host import HookHost

TEXT_PATHS: dict[str, tuple[tuple[str, ...], ...]] = {
    "Bash": (("stdout",), ("stderr",)),
    "BashOutput": (("stdout",), ("stderr",)),
    "PowerShell": (("stdout",), ("stderr",)),
    "Read": (("file", "content"),),
    "Grep": (("content",),),
    "WebFetch": (("result",),),
}
"""The paths of the texts that the model sees, in the responses of built-in tools."""

PERSISTED_PATH = "persistedOutputPath"
PERSISTED = (PERSISTED_PATH, "persistedOutputSize")
"""Claude Code keeps a copy of a large output in a file. As long as these fields are there it shows that file instead of
the hook's replacement."""

MCP_PREFIX = "mcp__"


def texts_of(tool: str, response: Any) -> list[str]:
    """The texts that the model would see, in order; none if the response has an unknown shape."""
    found: list[str] = []

    def collect(text: str) -> str:
        found.append(text)
        return text

    _map_texts(tool, copy.copy(response), collect)
    return found


def with_texts(tool: str, response: Any, texts: list[str]) -> Any:
    """A copy of the response with its texts replaced by these, in order, and everything else unchanged."""
    changed = copy.deepcopy(response)
    remaining = iter(texts)
    replaced = _map_texts(tool, changed, lambda _: next(remaining))
    if isinstance(replaced, dict):
        for key in PERSISTED:
            replaced.pop(key, None)
    return replaced


def persisted_output(response: Any) -> str | None:
    """The path of the file in which Claude Code keeps the whole of a large output; the response holds only its
    beginning then. None if the file is missing."""
    path = response.get(PERSISTED_PATH) if isinstance(response, dict) else None
    return path if isinstance(path, str) else None


def _map_texts(tool: str, response: Any, change: Callable[[str], str]) -> Any:
    """The response with each text changed, in place if possible."""
    if isinstance(response, str):
        return change(response)
    if isinstance(response, list):
        _map_blocks(response, change)
    elif isinstance(response, dict) and tool in TEXT_PATHS:
        for path in TEXT_PATHS[tool]:
            _map_path(response, path, change)
    elif isinstance(response, dict) and isinstance(response.get("content"), list):
        _map_blocks(response["content"], change)
    return response


def _map_blocks(blocks: list[Any], change: Callable[[str], str]) -> None:
    for index, block in enumerate(blocks):
        if isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str):
            blocks[index] = {**block, "text": change(block["text"])}


def _map_path(response: dict[str, Any], path: tuple[str, ...], change: Callable[[str], str]) -> None:
    *parents, name = path
    for parent in parents:
        inner = response.get(parent)
        if not isinstance(inner, dict):
            return
        # A copy, because `texts_of` passes a shallow copy: what it shares with the caller must not change.
        response[parent] = response = dict(inner)
    if isinstance(response.get(name), str) and response[name]:
        response[name] = change(response[name])


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
    from contextstash.hosts.hooks.compacted_transcripts import compacted_transcript

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
