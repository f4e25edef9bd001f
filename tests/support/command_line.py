"""Runs the command line as a user does: in its own process, with its own database, without the machine's settings."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.warm_processes import decoded, run_command

ANSI = "\x1b["

KINDS = ("apple", "pear", "plum", "quince", "medlar", "cherry")


@dataclass(frozen=True)
class CommandLine:
    """Runs `contextstash` in `folder`, which is home, project and place of the database in one."""

    folder: Path

    @property
    def database(self) -> Path:
        return self.folder / "sessions.db"

    def run(
        self, *arguments: str | Path, environment: dict[str, str] | None = None, typed: str = ""
    ) -> subprocess.CompletedProcess[str]:
        return decoded(self.run_bytes(*arguments, environment=environment, typed=typed.encode()))

    def run_bytes(
        self, *arguments: str | Path, environment: dict[str, str] | None = None, typed: bytes = b""
    ) -> subprocess.CompletedProcess[bytes]:
        ours = ("CONTEXTSTASH_", "ANTHROPIC_")
        clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        home = {"HOME": str(self.folder), "XDG_CONFIG_HOME": str(self.folder), "PYTHONUTF8": "1"}
        for name in ("CLAUDE_PROJECT_DIR", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME"):
            clean.pop(name, None)
        return run_command(
            [str(argument) for argument in arguments],
            folder=self.folder,
            environment={**clean, **home, "CONTEXTSTASH_DB": str(self.database), **(environment or {})},
            typed=typed,
        )

    def json(self, *arguments: str | Path, environment: dict[str, str] | None = None) -> Any:
        """The --json result of a command that must succeed."""
        done = self.run(*arguments, "--json", environment=environment)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


def failure_of(done: subprocess.CompletedProcess[str]) -> str:
    """The single line that a failed command prints; nothing else may be printed."""
    assert done.returncode == 1, (done.returncode, done.stdout, done.stderr)
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert line.startswith("Error: ")
    return line.removeprefix("Error: ")


def write_transcript(
    path: Path, *, session: str = "5b1f6c1e-0000-4000-8000-000000000001", outputs: int = 12
) -> list[str]:
    """A Claude Code transcript in which an agent reads `outputs` files. Returns the outputs' texts."""
    texts = [_file_text(number) for number in range(outputs)]
    records: list[dict[str, Any]] = [{"type": "summary", "summary": "Reading the orchard", "leafUuid": "x"}]
    records.append(_record("user", session, 0, "Read all the orchard files. You must not change any of them."))
    for number, text in enumerate(texts):
        call = {
            "type": "tool_use",
            "id": f"toolu_{number:04}",
            "name": "Read",
            "input": {"file_path": _file_name(number)},
        }
        result = {"type": "tool_result", "tool_use_id": f"toolu_{number:04}", "content": text}
        records.append(_record("assistant", session, 2 * number + 1, [call]))
        records.append(_record("user", session, 2 * number + 2, [result]))
    closing = [{"type": "text", "text": "All read. The quince in row 7 is the oldest tree."}]
    records.append(_record("assistant", session, 2 * outputs + 1, closing))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return texts


def _file_name(number: int) -> str:
    return f"orchard/row_{number:02}.txt"


def _file_text(number: int) -> str:
    trees = "\n".join(_tree(number, place) for place in range(120))
    return f"# row {number}\n{trees}"


def _tree(row: int, place: int) -> str:
    kind = KINDS[(row + place) % len(KINDS)]
    return f"tree {row * 100 + place}: {kind}, planted {1900 + (row * 7 + place) % 120}"


def _record(kind: str, session: str, number: int, content: Any) -> dict[str, Any]:
    message: dict[str, Any] = {"role": kind, "content": content}
    if kind == "assistant":
        message = {"id": f"msg_{number:04}", "type": "message", "model": "claude-sonnet-4-5", **message}
    return {
        "parentUuid": f"uuid-{number - 1:04}" if number else None,
        "isSidechain": False,
        "userType": "external",
        "cwd": "/srv/orchard",
        "sessionId": session,
        "version": "2.1.80",
        "type": kind,
        "message": message,
        "uuid": f"uuid-{number:04}",
        "timestamp": f"2026-03-03T09:{number // 60:02}:{number % 60:02}.000Z",
    }
