"""Runs the command line as a user does: in a process, folder and environment of its own, plain, on a terminal, on a
recorded session, or in an untrusted project."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["tests.support.preloaded"])


def run_command(
    arguments: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str],
    typed: bytes = b"",
    terminal: Path | None = None,
    seconds: float = 120.0,
) -> subprocess.CompletedProcess[bytes]:
    """What `contextstash` prints and returns with these arguments, once a process that it left behind has ended too;
    what it prints on a `terminal` is to be read there. Raises TimeoutExpired."""
    alive, held = _processes.Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as streams:
        files = [Path(streams) / name for name in ("in", "out", "err")]
        for file, content in zip(files, (typed, b"", b""), strict=True):
            file.write_bytes(content)
        names = files if terminal is None else [terminal] * 3
        process = _processes.Process(target=_run, args=(list(arguments), folder, dict(environment), names, held))
        process.start()
        held.close()
        process.join(seconds)
        if process.exitcode is None or not alive.poll(seconds):  # readable at its end
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(list(arguments), seconds)
        out, err = (name.read_bytes() for name in files[1:])
        return subprocess.CompletedProcess(list(arguments), process.exitcode, out, err)


def decoded(done: subprocess.CompletedProcess[bytes]) -> subprocess.CompletedProcess[str]:
    """The same as text. Raises UnicodeDecodeError."""
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def _run(arguments: list[str], folder: Path, environment: dict[str, str], names: list[Path], _held: Connection) -> None:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number, name in enumerate(names):
        os.dup2(os.open(name, os.O_CREAT | os.O_WRONLY if number else os.O_RDONLY, 0o600), number)
    sys.stdin, sys.stdout, sys.stderr = (_stream(number) for number in range(3))
    sys.argv = ["contextstash", *arguments]
    from contextstash.__main__ import main

    main()


def _stream(number: int) -> TextIO:
    return open(number, "w" if number else "r", 1, encoding="utf-8", closefd=False)


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


WINDOW = ("--set", "window=32000")


class Orchard:
    """A recorded session, its command line, and the texts of its outputs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run = CommandLine(folder).run
        self.json = CommandLine(folder).json
        self.texts = write_transcript(folder / "session.jsonl")
        [report] = self.json("import", folder / "session.jsonl")
        self.session: str = report["session_id"]


def printed_on_terminal(database: Path, *arguments: str, columns: int = 200) -> bytes:
    """What a command prints on a terminal of so many columns, standard error included. The command must succeed."""
    import pty

    terminal, end = pty.openpty()
    found: list[bytes] = []
    reader = threading.Thread(target=_read, args=(terminal, found))
    reader.start()
    home = {"HOME": str(database.parent), "XDG_CONFIG_HOME": str(database.parent), "COLUMNS": str(columns)}
    environment = {**os.environ, **home, "CONTEXTSTASH_DB": str(database), "PYTHONUTF8": "1"}
    try:
        done = run_command(
            arguments, folder=database.parent, environment=environment, terminal=Path(os.ttyname(end)), seconds=60
        )
        assert done.returncode == 0
    finally:
        os.close(end)
        reader.join()
        os.close(terminal)
    return b"".join(found)


def _read(terminal: int, found: list[bytes]) -> None:
    while True:
        try:
            data = os.read(terminal, 65_536)
        except OSError:  # the other end is closed
            return
        if not data:
            return
        found.append(data)


if TYPE_CHECKING:
    from mcp import Client


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
        from mcp import Client, StdioServerParameters  # takes half a second

        self.project.mkdir(parents=True, exist_ok=True)
        parameters = StdioServerParameters(
            command=sys.executable,
            args=["-m", "contextstash", *arguments],
            env=self.environment(**environment),
            cwd=self.project,
        )
        async with Client(parameters, read_timeout_seconds=60) as client:
            yield client
