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

from tests.support.client_files import SESSION, record, write_lines

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["tests.support.preloaded"])


def run_command(
    arguments: Sequence[str | Path],
    *,
    folder: Path,
    environment: Mapping[str, str],
    typed: str = "",
    terminal: Path | None = None,
    seconds: float = 120.0,
) -> subprocess.CompletedProcess[str]:
    """What `contextstash` prints and returns with these arguments, once a process that it left behind has ended too;
    what it prints on a `terminal` is to be read there. Raises TimeoutExpired."""
    alive, held = _processes.Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as streams:
        files = [Path(streams) / name for name in ("in", "out", "err")]
        for file, content in zip(files, (typed, "", ""), strict=True):
            file.write_bytes(content.encode())
        names = files if terminal is None else [terminal] * 3
        given = list(map(str, arguments))
        process = _processes.Process(target=_run, args=(given, folder, dict(environment), names, held))
        process.start()
        held.close()
        process.join(seconds)
        if process.exitcode is None or not alive.poll(seconds):  # readable at its end
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(given, seconds)
        out, err = (name.read_bytes().decode() for name in files[1:])
        return subprocess.CompletedProcess(given, process.exitcode, out, err)


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


def environment_of(home: Path, **more: str) -> dict[str, str]:
    """The variables of a process whose home is this folder, without the settings of this machine's user."""
    ours = ("CONTEXTSTASH_", "ANTHROPIC_", "CLAUDE_PROJECT_DIR", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**clean, "HOME": str(home), "XDG_CONFIG_HOME": str(home), "PYTHONUTF8": "1", **more}


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
        variables = {"CONTEXTSTASH_DB": str(self.database), **(environment or {})}
        return run_command(
            arguments, folder=self.folder, environment=environment_of(self.folder, **variables), typed=typed
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


def write_transcript(path: Path, *, session: str = SESSION, outputs: int = 12) -> list[str]:
    """A Claude Code transcript in which an agent reads `outputs` files. Returns the outputs' texts."""
    said: list[tuple[str, Any]] = [("user", "Read all the orchard files. You must not change any of them.")]
    texts = []
    for row in range(outputs):
        trees = range(row, row + 120)
        lines = [
            f"tree {row * 100 + place}: {KINDS[kind % len(KINDS)]}, planted {1900 + (row * 7 + place) % 120}"
            for place, kind in enumerate(trees)
        ]
        texts.append("\n".join([f"# row {row}", *lines]))
        given = {"file_path": f"orchard/row_{row:02}.txt"}
        said.append(("assistant", [{"type": "tool_use", "id": f"toolu_{row:04}", "name": "Read", "input": given}]))
        said.append(("user", [{"type": "tool_result", "tool_use_id": f"toolu_{row:04}", "content": texts[-1]}]))
    said.append(("assistant", [{"type": "text", "text": "All read. The quince in row 7 is the oldest tree."}]))
    records = [{"type": "summary", "summary": "Reading the orchard", "leafUuid": "x"}]
    for number, (role, content) in enumerate(said):
        parent, time = f"uuid-{number - 1:04}" if number else None, f"09:{number // 60:02}:{number % 60:02}"
        about = {"sessionId": session, "cwd": "/srv/orchard", "timestamp": f"2026-03-03T{time}.000Z"}
        records.append(record(role, f"uuid-{number:04}", parent, content, **about))
    write_lines(path, records)
    return texts


WINDOW = ("--set", "window=32000")


class Orchard:
    """A recorded session, its command line, and the texts of its outputs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run, self.json = CommandLine(folder).run, CommandLine(folder).json
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
    environment = environment_of(database.parent, COLUMNS=str(columns), CONTEXTSTASH_DB=str(database))
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
        return environment_of(self.folder / "home", CONTEXTSTASH_DB=str(self.database), **more)

    def run(self, *arguments: str | Path, typed: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        """A command as the user runs it in the project."""
        self.project.mkdir(parents=True, exist_ok=True)
        return run_command(arguments, folder=self.project, environment=self.environment(**environment), typed=typed)

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
