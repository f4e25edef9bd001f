"""Claude Code: its files, its MCP entry, its hooks, its window, its start behind the proxy.

Sources: its documentation (code.claude.com/docs/en: hooks, settings, env-vars), read in November 2026, and its versions
2.1.x as they ran. Its transcripts are read in contextstash.clients.claude_code_transcript.
"""

from __future__ import annotations

import copy
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextstash.base.regular_files import read_regular
from contextstash.clients.client import (
    Client,
    Entry,
    Files,
    Hooks,
    Launch,
    Machine,
    Proxied,
    WindowSetting,
    below,
    typed,
)
from contextstash.clients.launch import ANTHROPIC, base_of

if TYPE_CHECKING:
    from contextstash.clients.transcripts import Reader

MAX_NAME_LENGTH = 200
"""Characters of the name of a project's folder; Claude Code cuts a longer name there and appends a hash."""

MAX_HEAD_BYTES = 200_000
"""Bytes at the start of a transcript in which its project is searched for."""


def _reader() -> Reader:
    from contextstash.clients.claude_code_transcript import ClaudeCodeReader

    return ClaudeCodeReader()


def projects_folder(home: Path) -> Path:
    """The folder in which Claude Code keeps its transcripts."""
    configured = os.environ.get("CLAUDE_CONFIG_DIR")
    return (Path(configured) if configured else home / ".claude") / "projects"


def current_transcript(project: Path, projects: Path) -> Path | None:
    """The transcript of a project's folder that was written last, None if there is none."""
    from contextstash.clients.transcripts import paths_of

    for path in paths_of(project):
        for folder in _project_folders(path, projects):
            if (found := newest_transcript(folder)) is not None and _is_of(found, path, folder):
                return found
    return None


def _project_folders(path: str, projects: Path) -> list[Path]:
    """The folders that may hold the transcripts of a project. Claude Code names the folder after the project's path:
    each UTF-16 unit that is not an ASCII letter or digit becomes a hyphen, and a long name is cut and gets a hash. The
    hash depends on what Claude Code runs on, so any hash is accepted and the caller checks the project."""
    name = re.sub(r"[^A-Za-z0-9]", lambda found: "-" * (len(found[0].encode("utf-16-le")) // 2), path)
    if len(name) <= MAX_NAME_LENGTH:
        return [projects / name]
    start = f"{name[:MAX_NAME_LENGTH]}-"
    return [folder for folder in projects.glob("*") if folder.name.startswith(start)]


def _is_of(transcript: Path, path: str, folder: Path) -> bool:
    """Whether a transcript belongs to this project. Checked only in folders with a hash in their name."""
    from contextstash.base.regular_files import open_regular
    from contextstash.clients.transcripts import split_lines

    if len(folder.name) <= MAX_NAME_LENGTH:
        return True
    with open_regular(transcript) as file:
        lines, _ = split_lines(file.read(MAX_HEAD_BYTES), at_end=True)
    known = [line.record["cwd"] for line in lines if isinstance(line.record.get("cwd"), str)]
    return any(cwd == path or cwd.startswith(f"{path}/") for cwd in known)


def newest_transcript(folder: Path) -> Path | None:
    """The session transcript in a folder that was written last. Transcripts of sub-agents
    and links to files outside the folder do not count."""
    from contextstash.clients.transcripts import newest_first

    files = [file for file in folder.glob("*.jsonl") if not file.name.startswith("agent-")]
    return next(iter(newest_first(files, folder)), None)


def agent_transcripts(transcript: Path) -> list[Path]:
    """The transcripts of a session's sub-agents."""
    from contextstash.clients.transcripts import is_within

    folder = transcript.parent / transcript.stem / "subagents"
    return sorted(file for file in folder.glob("agent-*.jsonl") if is_within(file, transcript.parent))


def current_files(folder: Path, project: Path | None) -> list[Path]:
    """The transcript of this project that was written last (without a project: in this folder itself), then those of
    its sub-agents."""
    found = newest_transcript(folder) if project is None else current_transcript(project, folder)
    return [] if found is None else [found, *agent_transcripts(found)]


TEXT_PATHS: dict[str, tuple[tuple[str, ...], ...]] = {
    "Bash": (("stdout",), ("stderr",)),
    "BashOutput": (("stdout",), ("stderr",)),
    "PowerShell": (("stdout",), ("stderr",)),
    "Read": (("file", "content"),),
    "Grep": (("content",),),
    "WebFetch": (("result",),),
}
"""The paths of the texts that the model sees, in the responses of built-in tools. A replacement must have the tool's
own shape, or Claude Code keeps the original: an object with `stdout` for Bash, one with `file.content` for Read, a list
of content blocks for MCP tools."""

PERSISTED_PATH = "persistedOutputPath"
PERSISTED = (PERSISTED_PATH, "persistedOutputSize")
"""Claude Code keeps a copy of a large output in a file. As long as these fields are there it shows that file instead of
the hook's replacement."""


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


MAX_TAIL_BYTES = 4 * 1024 * 1024
"""The end of a transcript that is read. It holds the newest turn, with calls that run side by side."""

MAX_IDLE_SECONDS = 600.0
"""How long ago a sub-agent that was just compacted can have written its last message: the time of one summary;
a sub-agent that was stopped without a word is not taken for one that runs, once this time has passed."""


@dataclass(frozen=True)
class Tail:
    """The newest turn of a transcript. `waits` is true if a call has no result yet; `asks` if the next message is the
    model's; `tokens` is the size of the newest request, as reported."""

    waits: bool
    asks: bool
    tokens: int


def compacted_transcript(transcript: Path, sub_agents: Sequence[Path]) -> Path | None:
    """The transcript that was compacted; None if it is one of several sub-agents' and unclear whose.

    The compaction hooks run for sub-agents too, with the session and the transcript of the main agent and without a
    word about the sub-agent (claude-code#91910), and before the compaction is in any transcript (seen in 2.1.197). What
    remains is who can have been compacted: an agent that waits for a tool, or for its own sub-agent, sends no request.
    """
    main = _tail(transcript, is_sub_agent=False)
    now = time.time()
    running: dict[Path, Tail] = {}
    for path in sub_agents:
        if now - path.stat().st_mtime <= MAX_IDLE_SECONDS:
            tail = _tail(path, is_sub_agent=True)
            if tail.asks and not tail.waits:
                running[path] = tail
    if not main.waits and all(tail.tokens < main.tokens for tail in running.values()):
        return transcript
    return next(iter(running)) if len(running) == 1 else None


def _tail(path: Path, *, is_sub_agent: bool) -> Tail:
    from contextstash.base.regular_files import open_regular
    from contextstash.clients.transcripts import split_lines

    with open_regular(path) as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - MAX_TAIL_BYTES))
        lines, _ = split_lines(file.read(MAX_TAIL_BYTES), at_end=True)
    records = [line.record for line in lines if bool(line.record.get("isSidechain")) == is_sub_agent]
    messages = [record for record in records if record.get("type") in ("user", "assistant")]
    return Tail(_waits(messages), bool(messages) and messages[-1]["type"] == "user", _tokens(messages))


def _waits(messages: Sequence[dict[str, Any]]) -> bool:
    """Whether a call of the newest reply has no result."""
    newest = next((place for place in range(len(messages) - 1, -1, -1) if _is_prompt(messages[place])), -1)
    blocks = [block for message in messages[newest + 1 :] for block in _blocks(message)]
    called = {block.get("id") for block in blocks if block.get("type") == "tool_use"}
    return bool(called - {block.get("tool_use_id") for block in blocks if block.get("type") == "tool_result"})


def _is_prompt(message: dict[str, Any]) -> bool:
    """Whether the user wrote this, or the client for the user: an older call that was interrupted has no result."""
    return message["type"] == "user" and not any(block.get("type") == "tool_result" for block in _blocks(message))


def _blocks(message: dict[str, Any]) -> Iterable[dict[str, Any]]:
    from contextstash.clients.transcripts import objects, part

    return objects(part(message, "message").get("content"))


def _tokens(messages: Sequence[dict[str, Any]]) -> int:
    from contextstash.clients.transcripts import count_of, part

    for message in reversed(messages):
        if usage := part(message, "message", "usage"):
            names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
            return sum(count_of(usage, name) for name in names)
    return 0


WINDOWS = (100_000, 1_000_000)
"""The smallest and the largest window, in tokens, that Claude Code 2.1 takes; others act like the nearest one."""

DEFAULT_WINDOW = 200_000
"""Tokens that Claude Code uses of a larger window unless the model's is listed as native or the user selects it."""

RESERVE = 33_000
"""Tokens below its window at which Claude Code 2.1 compacts: 20,000 for the reply and 13,000 to spare. Measured: with a
window of 100,000 it compacts at 62,000 to 67,000. If a version keeps more or less, it compacts that much earlier or
later than it is set to, and than the status line says."""

WINDOW_VARIABLE = "CLAUDE_CODE_AUTO_COMPACT_WINDOW"
"""The environment variable that sets Claude Code's window for one process, in tokens."""

_NATIVE = re.compile(r"claude-(?:opus-(?:4-[7-9](?!\d)|[5-9])|sonnet-[5-9]|fable-|mythos-)")
"""Models whose whole window Claude Code 2.1.197 uses by its own table (Opus 4.7 and 4.8, Sonnet 5, Fable 5, Mythos 5),
and newer ones of these families, which are taken to be listed by newer versions. It does so at the vendor's own
address, at which `run` lets it think it is; at another one it uses 200,000 tokens, and the session's level is then
shown too low until its `window` is set."""

LARGE_WINDOW_SUFFIX = "[1m]"
"""Claude Code's own ending of a model's name that selects the window of 1,000,000 tokens, as in `sonnet[1m]`."""


def used_window(model: str | None, reported_tokens: int) -> int | None:
    """Claude Code's window in tokens; None for all that the model has: if it is used natively, if the model's name
    selects the large window, or if more tokens than the default window holds were reported, which shows that the large
    one is in use."""
    name = model or ""
    if LARGE_WINDOW_SUFFIX in name or _NATIVE.search(name) or reported_tokens > DEFAULT_WINDOW:
        return None
    return DEFAULT_WINDOW


def _with_window(launch: Launch, value: float) -> Launch:
    return Launch(launch.command, {**launch.environment, WINDOW_VARIABLE: str(value)})


def _launch(url: str, command: Sequence[str], environment: Mapping[str, str], upstream: str) -> Launch:
    """Behind another host than the vendor's, Claude Code (2.1.197) turns its tool search off, which makes each first
    request 30 KB larger, uses 200,000 tokens of a window of a million, and streams the inputs of tools whole. If the
    model API is the vendor's own, it is told so. The first variable is documented; the second is not, but no other
    keeps the windows: CLAUDE_CODE_MAX_CONTEXT_TOKENS counts only for models of other vendors (seen in 2.1.197)."""
    added = {"ANTHROPIC_BASE_URL": url}
    if upstream == ANTHROPIC:
        kept = {"ENABLE_TOOL_SEARCH": "true", "_CLAUDE_CODE_ASSUME_FIRST_PARTY_BASE_URL": "1"}
        added |= {name: value for name, value in kept.items() if name not in environment}
    return Launch(tuple(command), added)


PLUGIN = "contextstash@contextstash"
"""Our plugin in our marketplace, as `claude plugin install` names it (.claude-plugin/marketplace.json)."""


def _has_plugin(machine: Machine) -> bool:
    try:
        settings = json.loads(read_regular(machine.home / ".claude" / "settings.json"))
    except (OSError, ValueError):
        return False
    enabled = settings.get("enabledPlugins") if isinstance(settings, dict) else None
    return isinstance(enabled, dict) and enabled.get(PLUGIN) is True


CLAUDE_CODE = Client(
    "claude-code",
    has_plugin=_has_plugin,
    programs=("claude", "claude-code"),
    variables=("CLAUDE_PROJECT_DIR", "CLAUDECODE"),
    entry=Entry(
        "json",
        "mcpServers",
        {"user": lambda at: at.home / ".claude.json", "project": lambda at: at.project / ".mcp.json"},
        typed,
    ),
    files=Files(projects_folder, current_files, agent_transcripts),
    reader=_reader,
    hooks=Hooks(
        ("PostToolUse", "PreCompact", "SessionStart", "SessionEnd", "SubagentStop"),
        below(".claude", "settings.json"),
        timeout=30,
        parts=3,
        after_tool="PostToolUse",
        before_compaction="PreCompact",
        read_to_its_end=("SessionEnd", "SubagentStop", "Stop"),
        mcp_prefix="mcp__",
        texts_of=texts_of,
        replacement=replacement,
        # Claude Code itself cuts most outputs at 30,000 characters. A file is read to be worked with, so it is cut only
        # if it is very long: above 40,000 characters, about 1,000 lines.
        limits={"Read": 40_000},
        cut_at_end=frozenset({"Read"}),
        # Of a Bash output above 30,000 characters Claude Code 2.1 shows the first 2,000 and the path of its file.
        preview_limit=2_000,
        # Of more than 10,000 characters that one hook adds, 2.1.197 keeps all in a file and shows the first 2,000.
        context_limit=9_800,
        own_folders=lambda home: [projects_folder(home)],
        persisted_output=persisted_output,
        compacted=compacted_transcript,
    ),
    window=WindowSetting(
        "Claude Code",
        lowest=WINDOWS[0] - RESERVE,
        highest=WINDOWS[1] - RESERVE,
        value=lambda tokens: tokens + RESERVE,
        file=below(".claude", "settings.json"),
        kind="json",
        keys=("autoCompactWindow",),
        models="modelSettings",
        for_run=_with_window,
        why=f" ({RESERVE:,} more: so far below it Claude Code compacts)",
    ),
    used_window=used_window,
    proxied=Proxied(base_of("ANTHROPIC_BASE_URL", ANTHROPIC), _launch),
    # Claude Code (2.1.197) has no setting that makes an interactive session wait for its servers:
    # MCP_CONNECTION_NONBLOCKING and `alwaysLoad` had no effect there.
    continued=lambda program, message: (program, message),
    run_settings_option="--settings",
    has_status_line=True,
)

CLIENTS = (CLAUDE_CODE,)
