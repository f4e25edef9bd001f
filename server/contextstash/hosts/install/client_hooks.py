"""Clients' hooks in their configuration: which events call us, how they are added and removed. All have one shape.

Sources: the clients' own documentation of hooks (Claude Code and Gemini CLI: in the settings file; Codex CLI: in
`hooks.json` next to its configuration), read in November 2026.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contextstash.context.view.handoff_parts import MAX_PARTS
from contextstash.hosts.clients import Machine, Scope, below, codex_home


@dataclass(frozen=True)
class ClientHooks:
    """The hooks of one client. `timeout` is in the client's own unit: seconds, for Gemini CLI milliseconds, 30 seconds
    for each; `timeouts` are those of events for which the client waits less long. `parts` are the hooks of the start of
    a session, each of which gives a part of a hand-off: a client bounds what one hook may add to the window. `remark`
    is what its user has to know."""

    client: str
    events: tuple[str, ...]
    file: Callable[[Machine, Scope], Path]
    timeout: int
    parts: int = 1
    remark: str | None = None
    timeouts: Mapping[str, int] = field(default_factory=dict)

    @property
    def called(self) -> str:
        """The arguments after our command in each hook."""
        return f"hook {self.client}"

    def add(self, settings: MutableMapping[str, Any], command: Sequence[str], options: Sequence[str] = ()) -> None:
        """Add our hooks to each event, once; those that are there already get the new commands. Other hooks stay."""
        hooks = settings.setdefault("hooks", {})
        for event in self.events:
            lines = [shlex.join([*command, *self.called.split(), *part, *options]) for part in self._parts(event)]
            groups = hooks.setdefault(event, [])
            ours = [hook for group in groups for hook in group.get("hooks", ()) if self._is_ours(hook)]
            timeout = self.timeouts.get(event, self.timeout)
            for hook, line in zip(ours, lines, strict=False):
                hook["command"] = line
                if event in self.timeouts:
                    hook["timeout"] = timeout
            if more := lines[len(ours) :]:
                own = next((group for group in groups if any(map(self._is_ours, group.get("hooks", ())))), None)
                if own is None:
                    groups.append(own := {"hooks": []})
                own["hooks"] += [{"type": "command", "command": line, "timeout": timeout} for line in more]

    def _parts(self, event: str) -> list[list[str]]:
        """The options of each hook of an event that say which part of a hand-off it gives."""
        if event != "SessionStart" or self.parts == 1:
            return [[]]
        return [["--part", f"{number}/{self.parts}"] for number in range(1, self.parts + 1)]

    def remove(self, settings: MutableMapping[str, Any]) -> None:
        """Remove our hook from every event, and what is empty after that."""
        hooks = settings.get("hooks")
        if not isinstance(hooks, dict):
            return
        for event in list(hooks):
            groups = []
            for group in hooks[event]:
                rest = [hook for hook in group.get("hooks", ()) if not self._is_ours(hook)]
                if rest or not group.get("hooks"):
                    groups.append({**group, "hooks": rest})
            hooks[event] = groups
            if not groups:
                del hooks[event]
        if not hooks:
            del settings["hooks"]

    def missing(self, settings: Any) -> list[str]:
        """The events without contextstash's hook in these settings."""
        found = settings.get("hooks") if isinstance(settings, dict) else None
        groups = found if isinstance(found, dict) else {}
        return [event for event in self.events if not self._has_ours(groups.get(event))]

    def _has_ours(self, groups: Any) -> bool:
        given = [group for group in groups if isinstance(group, dict)] if isinstance(groups, list) else []
        return any(self._is_ours(hook) for group in given for hook in group.get("hooks") or ())

    def _is_ours(self, hook: Any) -> bool:
        command = str(hook.get("command")) if isinstance(hook, dict) else ""
        return "contextstash" in command and self.called in command


def _codex_file(machine: Machine, scope: Scope) -> Path:
    return (codex_home(machine) if scope == "user" else machine.project / ".codex") / "hooks.json"


HOOKS: Mapping[str, ClientHooks] = {
    hooks.client: hooks
    for hooks in (
        ClientHooks(
            "claude-code",
            ("PostToolUse", "PreCompact", "SessionStart", "SessionEnd", "SubagentStop"),
            below(".claude", "settings.json"),
            timeout=30,
            parts=MAX_PARTS,
        ),
        ClientHooks(
            "codex",
            ("PostToolUse", "PreCompact", "SessionStart", "SessionEnd", "SubagentStop"),
            _codex_file,
            timeout=30,
            parts=MAX_PARTS,
            remark="Codex runs new hooks only once you trust them: /hooks shows them.",
            # Seconds. Codex waits for this hook before it exits, and ends it then at the latest (0.169).
            timeouts={"SessionEnd": 3},
        ),
        ClientHooks(
            "gemini",
            ("AfterTool", "PreCompress", "BeforeAgent", "SessionStart", "SessionEnd"),
            below(".gemini", "settings.json"),
            timeout=30_000,
        ),
    )
}
