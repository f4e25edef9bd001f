"""Claude Code: its files, its hooks, its window, its start behind the proxy, our plugin in it.

Sources: its documentation (code.claude.com/docs/en: hooks, settings, env-vars, plugins), read in November 2026, and its
versions 2.1.x as they ran. Its transcripts are read in contextstash.clients.claude_code_transcript.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextstash.base.files import open_regular
from contextstash.clients.client import (
    PLUGINS,
    Bundle,
    Client,
    Entry,
    Files,
    Hooks,
    Launch,
    Proxied,
    TextPath,
    anthropic_api,
    below,
    text_blocks,
    typed,
)
from contextstash_storage.errors import BadInputError

if TYPE_CHECKING:
    from contextstash.clients.transcripts import Reader


def _reader() -> Reader:
    from contextstash.clients.claude_code_transcript import READER

    return READER


# Its files.


FLUSH_SECONDS = 2.0
"""Claude Code writes a call into its transcript up to 0.1 s after it made it (2.1.332, as it ran)."""

MAX_SEARCHED, MAX_TAIL = 20, 1_000_000
"""A call is searched for in so many transcripts, the newest ones, and in so many bytes at the end of each: parallel
calls and their outputs may stand behind it."""


def current_sessions(folder: Path, project: Path, call: Mapping[str, Any]) -> list[list[Path]]:
    """The session whose transcript, or a sub-agent's, holds the call's id. If none does, or the call has none, the one
    that this process was started for, if it was written lately, else the newest: after `--continue` and `/clear` the
    window has another one."""
    from contextstash.clients.current import NOT_TOLD, recent

    call_id = call.get("claudecode/toolUseId")
    own = _holding(f'"{call_id}"'.encode(), folder, project) if call_id else None
    lately = [own] if own else recent(_transcripts(folder, project))
    started = [file for file in lately if file.stem == os.environ.get("CLAUDE_CODE_SESSION_ID")]
    if call_id and not (own or started):
        raise BadInputError(NOT_TOLD)
    return [[file, *agent_transcripts(file)] for file in started or lately]


def _holding(text: bytes, folder: Path, project: Path) -> Path | None:
    """The transcript near whose end, or a sub-agent's, a text stands, or soon will; None if none has it in time."""
    until = time.monotonic() + FLUSH_SECONDS
    while True:
        for transcript in _transcripts(folder, project)[:MAX_SEARCHED]:
            for path in (transcript, *agent_transcripts(transcript)):
                with suppress(OSError), open_regular(path) as file:  # it may be deleted meanwhile
                    file.seek(max(0, path.stat().st_size - MAX_TAIL))
                    if text in file.read():
                        return transcript
        if time.monotonic() > until:
            return None
        time.sleep(0.05)


def _transcripts(folder: Path, project: Path) -> list[Path]:
    """The transcripts of this project, the one written last first.

    Claude Code names a project's folder after the project's path: each UTF-16 unit that is not an ASCII letter or digit
    becomes a hyphen. (A name of more than 200 is cut, and gets a hash that depends on what Claude Code runs on; such a
    project is not followed.)
    """
    from contextstash.clients.current import newest_first, paths_of

    for path in paths_of(project):
        name = re.sub(r"[^A-Za-z0-9]", lambda found: "-" * (len(found[0].encode("utf-16-le")) // 2), path)
        files = [file for file in (folder / name).glob("*.jsonl") if not file.name.startswith("agent-")]
        if found := newest_first(files, folder / name):
            return found
    return []


def agent_transcripts(transcript: Path) -> list[Path]:
    """The transcripts of a session's sub-agents."""
    from contextstash.clients.current import newest_first

    folder = transcript.parent / transcript.stem / "subagents"
    return sorted(newest_first(folder.glob("agent-*.jsonl"), transcript.parent))


# The outputs of its tools.

TEXT_PATHS: dict[str, list[TextPath]] = {
    "Bash": [("stdout",), ("stderr",)],
    "BashOutput": [("stdout",), ("stderr",)],
    "PowerShell": [("stdout",), ("stderr",)],
    "Read": [("file", "content")],
    "Grep": [("content",)],
    "WebFetch": [("result",)],
}
"""The paths of the texts that the model sees, in the responses of built-in tools. A replacement must have the tool's
own shape, or Claude Code keeps the original: an object with `stdout` for Bash, one with `file.content` for Read, a list
of content blocks for MCP tools."""

PERSISTED_PATH = "persistedOutputPath"
"""The file in which Claude Code keeps the whole of a large output; the response holds only its beginning then. As long
as the field is there, it shows that file instead of the hook's replacement."""


def text_paths(tool: str, response: Any) -> list[TextPath]:
    """The paths of the texts in a tool's response; none if it has an unknown shape."""
    if isinstance(response, str):
        return [()]
    if isinstance(response, dict) and tool in TEXT_PATHS:
        return TEXT_PATHS[tool]
    return text_blocks(response)


def replacement(changed: Any, _: Sequence[str]) -> dict[str, Any]:
    """The hook's response that replaces a tool's response, in its own shape."""
    if isinstance(changed, dict):
        changed = {key: value for key, value in changed.items() if key not in (PERSISTED_PATH, "persistedOutputSize")}
    return {"hookSpecificOutput": {"hookEventName": "PostToolUse", "updatedToolOutput": changed}}


# Its window and its start.

DEFAULT_WINDOW = 200_000
"""Tokens that Claude Code uses of a larger window unless the model's is listed as native or the user selects it."""

RESERVE = 33_000
"""Tokens below its window at which Claude Code 2.1 compacts: 20,000 for the reply and 13,000 to spare. Measured: with a
window of 100,000 it compacts at 62,000 to 67,000. If a version keeps more or less, it compacts that much earlier or
later than it is set to."""

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


def _launch(url: str, command: Sequence[str], window: int | None) -> Launch:
    """From 2.1.326 on at the latest, its windows and its tool search are the same behind any host. It takes windows of
    100,000 to 1,000,000 tokens; others act like the nearest one."""
    sized = {} if window is None else {"CLAUDE_CODE_AUTO_COMPACT_WINDOW": str(window + RESERVE)}
    return tuple(command), {"ANTHROPIC_BASE_URL": url, **sized}


# Our plugin in it.

MARKET = "contextstash"
PLUGIN = f"contextstash@{MARKET}"
"""Our plugin in our marketplace, as `claude plugin install` names it (.claude-plugin/marketplace.json)."""


CLIENTS = (
    Client(
        "claude-code",
        bundle=Bundle(
            below(".claude", "settings.json"),
            {
                ("extraKnownMarketplaces", MARKET): {"source": {"source": "directory", "path": str(PLUGINS)}},
                ("enabledPlugins", PLUGIN): True,
            },
            enabled=("enabledPlugins", PLUGIN),
            database=("env", "CONTEXTSTASH_DB"),
            traces=(
                (below(".claude", "plugins", "known_marketplaces.json"), (MARKET,)),
                (below(".claude", "plugins", "installed_plugins.json"), ("plugins", PLUGIN)),
            ),
            does="our plugin: the MCP server, the hooks, and the mod that answers compactions",
        ),
        programs=("claude", "claude-code"),
        entry=Entry("json", "mcpServers", below(".claude.json"), typed),
        files=Files(
            lambda: Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude") / "projects",
            current_sessions,
            agent_transcripts,
        ),
        reader=_reader,
        hooks=Hooks(
            ("PostToolUse", "PreCompact", "SessionStart", "SessionEnd", "SubagentStop"),
            timeout=30,
            parts=3,
            after_tool="PostToolUse",
            mcp_prefix="mcp__",
            text_paths=text_paths,
            replacement=replacement,
            # Claude Code itself cuts most outputs at 30,000 characters. A file is read to be worked with, so it is cut
            # only if it is very long: above 40,000 characters, about 1,000 lines.
            limits={"Read": 40_000},
            cut_at_end=frozenset({"Read"}),
            # Of a Bash output above 30,000 characters Claude Code 2.1 shows the first 2,000 and the path of its file.
            preview_limit=2_000,
            # Of more than 10,000 characters that one hook adds, 2.1.197 keeps all in a file and shows the first 2,000.
            context_limit=9_800,
            persisted_path=PERSISTED_PATH,
        ),
        used_window=used_window,
        proxied=Proxied(
            anthropic_api,
            _launch,
            user_agents=(b"claude-cli", b"claude-code"),
            session_headers=(b"x-claude-code-session-id",),  # seen in 2.1.197
            asks_for_summary=("your task is to create a detailed summary of the conversation",),
            continues=("this session is being continued from a previous conversation",),
        ),
        # Claude Code (2.1.197) has no setting that makes an interactive session wait for its servers:
        # MCP_CONNECTION_NONBLOCKING and `alwaysLoad` had no effect there.
        continued=lambda program, message: (program, message),
    ),
)
