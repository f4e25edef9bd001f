"""The size at which each client compacts its window: its own setting for that, for one run or in its configuration.

Sources: Claude Code 2.1.197 as it ran (`CLAUDE_CODE_AUTO_COMPACT_WINDOW`, the setting `autoCompactWindow`), Codex 0.169
as it ran (`model_auto_compact_token_limit`), Gemini CLI's documentation of its settings (`model.compressionThreshold`).
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contextstash.hosts.clients import CLIENTS, Machine, Scope, below
from contextstash.hosts.configuration_files import Kind, content
from contextstash.hosts.launch import Launch
from contextstash.hosts.window_sizes import CLAUDE_CODE_RESERVE, CLAUDE_CODE_VARIABLE
from contextstash_storage.errors import BadInputError

CLAUDE_CODE_WINDOWS = (100_000, 1_000_000)
"""The smallest and the largest window, in tokens, that Claude Code 2.1 takes; others act like the nearest one."""

GEMINI_WINDOW = 1_048_576
"""Tokens of the window of all models of Gemini CLI, of which its threshold is a share."""

SYSTEM_SETTINGS = "GEMINI_CLI_SYSTEM_SETTINGS_PATH"


@dataclass(frozen=True)
class CompactionSetting:
    """The setting of a `client`, whose own name is `name`. `value` is what it takes for a size in tokens, of at least
    `lowest` and at most `highest`; `keys` is where it stands in the `file` of the client's configuration; `for_run`
    adds it to a process; `why` says why the value is another than the size, if it is."""

    client: str
    name: str
    lowest: int
    highest: int
    value: Callable[[int], float]
    file: Callable[[Machine, Scope], Path]
    kind: Kind
    keys: tuple[str, ...]
    for_run: Callable[[Launch, float], Launch]
    why: str = ""

    def nearest(self, tokens: int) -> int:
        """The wanted size, or the nearest one that the client takes."""
        return min(max(tokens, self.lowest), self.highest)

    def put(self, settings: MutableMapping[str, Any], value: object) -> None:
        """Set the value."""
        for key in self.keys[:-1]:
            settings = settings.setdefault(key, {})
            if not isinstance(settings, MutableMapping):
                raise BadInputError(f"'{key}' in that file is not a mapping. Nothing was written.")
        settings[self.keys[-1]] = value

    def read(self, settings: Any) -> Any:
        """The value, None if it is not set."""
        for key in self.keys:
            settings = settings.get(key) if isinstance(settings, Mapping) else None
        return settings

    def take_back(self, settings: MutableMapping[str, Any], written: Mapping[str, Any]) -> None:
        """Set the value back to that `before` what was `written`; without effect if the user has changed it since."""
        if self.read(settings) != written["value"]:
            return
        if written["before"] is not None:
            self.put(settings, written["before"])
            return
        parents: list[MutableMapping[str, Any]] = [settings]
        for key in self.keys[:-1]:
            parents.append(parents[-1][key])
        for parent, key in reversed(list(zip(parents, self.keys, strict=True))):
            if key == self.keys[-1] or not parent[key]:
                del parent[key]


def compaction_setting(client: str) -> CompactionSetting:
    """The setting of a client, by the name of its program or the one that `install` uses. Raises BadInputError if it
    has none."""
    found = SETTINGS.get(PROGRAMS.get(client, client))
    if found is None:
        why = REASONS.get(client, f"contextstash knows no setting of {client} for it")
        raise BadInputError(f"--window sets where a client compacts: {why}. Known: {', '.join(SETTINGS)}.")
    return found


def remark_on(setting: CompactionSetting, wanted: int) -> str | None:
    """The remark for a user whose size the client does not take."""
    nearest = setting.nearest(wanted)
    if nearest == wanted:
        return None
    bound = "least" if nearest > wanted else "most"
    return f"{setting.name} compacts at {nearest:,} tokens at the {bound}: that is set."


def _claude(launch: Launch, value: float) -> Launch:
    return Launch(launch.command, {**launch.environment, CLAUDE_CODE_VARIABLE: str(value)})


def _codex(launch: Launch, value: float) -> Launch:
    program, *arguments = launch.command
    return Launch((program, "-c", f"model_auto_compact_token_limit={value}", *arguments), launch.environment)


def _gemini(launch: Launch, value: float) -> Launch:
    """Gemini CLI has no option or variable for it, but one for the file of the machine's settings. Those that stand in
    the machine's own file are kept."""
    machine = Path("/etc/gemini-cli/settings.json")
    given = Path(launch.environment.get(SYSTEM_SETTINGS) or machine)
    settings = content("json", given.read_text("utf-8"), str(given)) if given.is_file() else {}
    SETTINGS["gemini"].put(settings, value)
    file = Path(tempfile.mkdtemp(prefix="contextstash-")) / "settings.json"
    file.write_text(json.dumps(settings), "utf-8")
    return Launch(launch.command, {**launch.environment, SYSTEM_SETTINGS: str(file)})


SETTINGS: Mapping[str, CompactionSetting] = {
    "claude-code": CompactionSetting(
        "claude-code",
        "Claude Code",
        lowest=CLAUDE_CODE_WINDOWS[0] - CLAUDE_CODE_RESERVE,
        highest=CLAUDE_CODE_WINDOWS[1] - CLAUDE_CODE_RESERVE,
        value=lambda tokens: tokens + CLAUDE_CODE_RESERVE,
        file=below(".claude", "settings.json"),
        kind="json",
        keys=("autoCompactWindow",),
        for_run=_claude,
        why=f" ({CLAUDE_CODE_RESERVE:,} more: so far below it Claude Code compacts)",
    ),
    "codex": CompactionSetting(
        "codex",
        "Codex",
        lowest=1,
        highest=10_000_000,
        value=lambda tokens: tokens,
        file=lambda machine, scope: CLIENTS["codex"].files[scope](machine),
        kind="toml",
        keys=("model_auto_compact_token_limit",),
        for_run=_codex,
    ),
    "gemini": CompactionSetting(
        "gemini",
        "Gemini CLI",
        lowest=1,
        highest=GEMINI_WINDOW,
        value=lambda tokens: round(tokens / GEMINI_WINDOW, 4),
        file=below(".gemini", "settings.json"),
        kind="json",
        keys=("model", "compressionThreshold"),
        for_run=_gemini,
    ),
}
"""By the name that `contextstash install` uses."""

PROGRAMS = {"claude": "claude-code"}
"""The names of programs that `contextstash install` calls something else."""

REASONS = {
    "opencode": "OpenCode's, compaction.reserved, counts from the end of each model's window, so set it yourself in"
    " opencode.json: the model's window without the size that you want",
}
