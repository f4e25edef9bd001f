"""A project with untrusted files, the user's home next to it, and a listener that receives leaked data."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters

from tests.support.warm_processes import decoded, run_command

KEY = "sk-ant-the-users-own-key"

SMALL_WINDOW = {"CONTEXTSTASH_WINDOW": "16000", "CONTEXTSTASH_PRUNE_AUTOMATIC": "false"}
"""The user's own, so that the small session of `serving` is compacted when it is recorded."""


@dataclass(frozen=True)
class UntrustedProject:
    """A home and a project below `folder`; commands run in the project, as the user who cloned it."""

    folder: Path

    @property
    def project(self) -> Path:
        return self.folder / "project"

    @property
    def user_folder(self) -> Path:
        return self.folder / "home" / "contextstash"

    @property
    def file(self) -> Path:
        return self.project / "contextstash.toml"

    @property
    def database(self) -> Path:
        return self.folder / "sessions.db"

    @property
    def log(self) -> str:
        """What the hooks logged."""
        path = self.folder / "hooks.log"
        return path.read_text() if path.exists() else ""

    def write(self, text: str, name: str = "contextstash.toml") -> Path:
        """A file of the project."""
        path = self.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def configure(self, text: str) -> None:
        """The user's own file."""
        self.user_folder.mkdir(parents=True, exist_ok=True)
        (self.user_folder / "contextstash.toml").write_text(text)

    def environment(self, **more: str) -> dict[str, str]:
        ours = ("CONTEXTSTASH_", "ANTHROPIC_")
        clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        clean.pop("CLAUDE_PROJECT_DIR", None)
        home = str(self.folder / "home")
        named = {"HOME": home, "XDG_CONFIG_HOME": home, "CONTEXTSTASH_DB": str(self.database), "PYTHONUTF8": "1"}
        return {**clean, **named, **more}

    def run(self, *arguments: str | Path, typed: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        """A command as the user runs it in the project."""
        self.project.mkdir(parents=True, exist_ok=True)
        return decoded(
            run_command(
                [str(argument) for argument in arguments],
                folder=self.project,
                environment=self.environment(**environment),
                typed=typed.encode(),
            )
        )

    def hook(self, event: str, environment: dict[str, str] | None = None, **fields: Any) -> Any:
        """What the hook of Claude Code returns for an event: its fields, a plain text, or None."""
        event_json = json.dumps({"hook_event_name": event, **fields})
        done = self.run("hook", "claude-code", typed=event_json, **(environment or {}))
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout) if done.stdout.startswith("{") else done.stdout or None

    @asynccontextmanager
    async def client(self, *arguments: str, **environment: str) -> AsyncIterator[Client]:
        """The SDK's own client, connected to a server started in the project with these arguments."""
        self.project.mkdir(parents=True, exist_ok=True)
        parameters = StdioServerParameters(
            command=sys.executable,
            args=["-m", "contextstash", *arguments],
            env=self.environment(**environment),
            cwd=self.project,
        )
        async with Client(parameters, read_timeout_seconds=60) as client:
            yield client
