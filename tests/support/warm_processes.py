"""Commands in processes of their own that start in milliseconds.

A process is forked from one that has already imported what commands need and loaded a vocabulary: this takes a second
of CPU, and the tests run some thousand commands. Each command has its own environment, folder and standard streams.
What the start itself does is tested with a new interpreter: tests/mcp/test_serving.py, tests/test_architecture.py."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TextIO

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
