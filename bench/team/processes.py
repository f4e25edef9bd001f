"""The processes of the bench: a PostgreSQL that writes durably, and servers over HTTP."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from tests.support.postgres_server import UNPRIVILEGED, programs

CONNECTIONS = 20
"""Of each server's pool."""

TICKS = os.sysconf("SC_CLK_TCK")


class Postgres:
    """A PostgreSQL with its default settings, thus with fsync, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        found = programs()
        assert found is not None, "no PostgreSQL is installed"
        self._bin = found
        self._folder = folder
        self._user: dict[str, object] = {}
        if os.getuid() == 0:
            self._user = {"user": UNPRIVILEGED, "group": "nogroup", "extra_groups": []}
            shutil.chown(folder, UNPRIVILEGED)
        self._run("initdb", "--username=bench", "--auth=trust", "--encoding=UTF8", "--locale=C")
        self._control("start")

    @property
    def address(self) -> str:
        host = quote(str(self._folder), safe="")
        return f"postgresql://bench@/postgres?host={host}&pool_size={CONNECTIONS}"

    def crash_and_restart(self) -> float:
        """End it as a crash does, and start it again; the seconds that this takes."""
        begun = time.monotonic()
        self._control("restart", "--mode=immediate")
        return time.monotonic() - begun

    def stop(self) -> None:
        self._control("stop", "--mode=immediate")

    def processor_seconds(self) -> float:
        """Of all its processes since the last start."""
        main = int((self._folder / "data" / "postmaster.pid").read_text().split()[0])
        return processor_seconds(main)

    def _control(self, action: str, *more: str) -> None:
        options = f"-k {self._folder} -c listen_addresses= -c max_connections=100"
        log = str(self._folder / "log")
        self._run("pg_ctl", action, "--wait", *more, *([] if action == "stop" else ["-o", options, "-l", log]))

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._bin / program), "-D", str(self._folder / "data"), *arguments]
        subprocess.run(
            command,
            check=True,
            cwd=self._folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            **self._user,  # type: ignore[call-overload]
        )


@contextmanager
def postgres(folder: Path) -> Iterator[Postgres]:
    """A PostgreSQL for the block."""
    folder.chmod(0o755)
    running = Postgres(folder)
    try:
        yield running
    finally:
        running.stop()


class Server:
    """A server process of ours. After `kill` it can be started again, on the same port."""

    def __init__(self, database: str, *settings: str) -> None:
        self._arguments = ["--tools", "all", "--db", database, "--rate-limit", "0"]
        for setting in settings:
            self._arguments += ["--set", setting]
        self._port = 0
        self.url = ""
        self._spent = 0.0
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "contextstash", "serve", "--http", f"127.0.0.1:{self._port}", *self._arguments]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        assert self._process.stderr
        line = self._process.stderr.readline()
        assert "http://" in line, line + self._process.stderr.read()
        self.url = line.split("serves ")[1].split(";")[0].strip()
        self._port = int(self.url.split(":")[2].split("/")[0])
        self._process.stderr.readline()

    def kill(self) -> None:
        """End it by SIGKILL."""
        self._spent = self.processor_seconds()
        self._process.kill()
        self._end()

    def stop(self) -> float:
        """End it by SIGTERM; the seconds that this takes."""
        self._spent = self.processor_seconds()
        begun = time.monotonic()
        self._process.send_signal(signal.SIGTERM)
        self._end()
        return time.monotonic() - begun

    def _end(self) -> None:
        self._process.wait(60)
        if self._process.stderr:
            self._process.stderr.close()

    @property
    def exit_code(self) -> int | None:
        return self._process.returncode

    def processor_seconds(self) -> float:
        """Of this process and those before it on the same port."""
        return self._spent + (processor_seconds(self._process.pid) if self._process.poll() is None else 0.0)

    def megabytes(self) -> float:
        """Its memory now."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024


def processor_seconds(process: int) -> float:
    """What a process and those that it started have used."""
    total = 0
    with suppress(OSError):
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        total += sum(int(value) for value in fields[11:15])
    spent = total / TICKS
    with suppress(OSError):
        for child in Path(f"/proc/{process}/task/{process}/children").read_text().split():
            spent += processor_seconds(int(child))
    return spent
