"""`contextstash doctor`: what is wrong with the installation on this machine, and what to do."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from contextstash.cli.console import echo, echo_json
from contextstash.cli.options import DATABASE, JSON, settings_from
from contextstash.configuration.setting_layers import shown
from contextstash.safety.sanitize import counted
from contextstash_storage.errors import BadInputError, ContextstashError

if TYPE_CHECKING:
    from contextstash.clients.client import Client, Kind, Machine
    from contextstash_storage.databases import Location

ROUND_TRIP_SECONDS = 30.0
"""About as long as clients wait for a server to start; a slower one is reported as failing."""

UNREAD_SECONDS = 7 * 86_400
"""How long requests that could not be read are a finding: as long as a receipt goes back."""

LABELS = {"ok": ("ok  ", "green"), "note": ("note", "yellow"), "wrong": ("BAD ", "red")}
"""How a finding begins, and in which colour."""


@dataclass(frozen=True)
class Finding:
    """The result of one check: `state` is ok, note or wrong; `advice` says what to do."""

    what: str
    state: str
    says: str
    advice: str = ""


Findings = Iterator[Finding]


@click.command()
@DATABASE
@JSON
def doctor(db: Location | None, as_json: bool) -> int:
    """Check the database, the clients' configurations and a round trip over stdio.

    Exit code 1 if something is wrong.
    """
    found: list[Finding] = []
    for check in (_database, _network, _clients, _round_trip):
        for finding in _safely(check, db):
            found.append(finding)
            if not as_json:
                label, colour = LABELS[finding.state]
                click.secho(label, fg=colour, nl=False)
                echo(f" {finding.what}: {finding.says}")
                if finding.advice:
                    echo(f"      {finding.advice}")
    bad = sum(finding.state == "wrong" for finding in found)
    if as_json:
        echo_json([asdict(finding) for finding in found])
    else:
        click.echo(f"{bad} of {len(found)} checks found a problem." if bad else "No problems found.")
    return 1 if bad else 0


def _safely(check: Callable[[Location | None], Findings], database: Location | None) -> Findings:
    """The findings of a check. An error in the check is a finding too, about its subject."""
    subject = check.__name__.strip("_").replace("_", " ")
    try:
        yield from check(database)
    except ContextstashError as error:
        yield Finding(subject, "wrong", str(error), "Fix what the message names.")
    except Exception as error:
        yield Finding(subject, "wrong", f"this check failed: {type(error).__name__}: {error}", "Please report it.")


def _database(location: Location | None) -> Findings:
    """Whether it is whole, encrypted if it shall be, and its owner's alone; and what the proxy could not record."""
    from contextstash.configuration.database import database_key, key_source
    from contextstash.configuration.locations import default_database
    from contextstash.results import unread_line
    from contextstash_storage.sqlite.health import look_at

    path = location or default_database()
    if not isinstance(path, Path):
        yield Finding("database", "ok", f"{path}, {counted(asyncio.run(_in_use(path))[0], 'session')}")
        return
    if not path.exists():
        yield Finding("database", "note", f"{path} does not exist yet", "The first use creates it.")
        return
    health = look_at(path, database_key)
    encrypted, is_whole = ", encrypted" if health.encrypted else "", health.check == "ok"
    says = f"{path}, {counted(health.sessions, 'session')}{encrypted}, quick check: {health.check}"
    advice = "" if is_whole else "Move it away and restore a backup."
    yield Finding("database", "ok" if is_whole else "wrong", says, advice)
    for session, what in health.damaged:
        yield Finding(f"session {session}", "wrong", what, "Restore a backup, or export what can be read.")
    if key_source(os.environ) is not None and not health.encrypted:
        says = "the database can be read without a key, though encryption_key is set"
        yield Finding("encryption", "wrong", says, "End all clients, then: contextstash encrypt")
    mode = stat.S_IMODE(path.stat().st_mode)
    if sys.platform != "win32" and mode & 0o077:
        yield Finding("permissions", "wrong", f"other users may read the database ({mode:o})", f"chmod 600 {path}")
    if is_whole and (unread := asyncio.run(_in_use(path))[1]):
        yield Finding("proxy", "wrong", unread_line(unread), f"Look into {path.with_name('proxy.log')}.")


async def _in_use(database: Location) -> tuple[int, int]:
    """How many sessions there are, and requests of the last week that the proxy could not read."""
    from contextstash.configuration.database import open_database

    async with await open_database(database) as store:
        proxied = await store.recent_proxied(time.time() - UNREAD_SECONDS, 1_000)
        return await store.session_count(), sum(state.unread for _, state in proxied)


def _network(_: Location | None) -> Findings:
    """Whether data may leave this machine, by settings that can be read."""
    from contextstash.configuration.consent import network_use

    found = settings_from(None, ())
    for agent in (None, *found.agents()):
        use = network_use(found, os.environ, agent)
        if agent is None or use.may_leave:
            what = "network" if agent is None else f"network, agent {shown(agent, 40)}"
            yield Finding(what, "note" if use.may_leave else "ok", use.sentence, use.detail)


def _clients(_: Location | None) -> Findings:
    from contextstash.clients.client import Machine, clients

    machine = Machine.this()
    found = [finding for client in clients() for finding in _of_client(client, machine)]
    yield from found
    if not found:
        yield Finding("clients", "note", "contextstash is not installed in any client", "contextstash install CLIENT")


def _of_client(client: Client, machine: Machine) -> Findings:
    """What is installed in a client: a bundle, a server with hooks, a plugin."""
    from contextstash.clients.install import SERVER, missing_hooks

    install = f"contextstash install {client.name}"
    if client.bundle is not None and client.bundle.is_enabled(machine):
        yield Finding(f"{client.name} (plugin)", "ok", "its server, hooks and mod are there")
    try:
        if (entry := client.entry) is not None:
            servers = _content(entry.kind, entry.file(machine)).get(entry.key)
            if isinstance(servers, dict) and SERVER in servers:
                yield _starts(client.name, _command_of(servers[SERVER]), install)
                if (hooks := client.hooks) is not None and hooks.file is not None:
                    missing = missing_hooks(client, _content("json", hooks.file(machine)))
                    if missing:
                        yield Finding(f"{client.name} hooks", "note", f"missing for {', '.join(missing)}", install)
    except BadInputError as error:
        yield Finding(client.name, "wrong", str(error), "Correct the file.")
        return
    if (plugin := client.plugin) is not None and (command := plugin.installed(machine)) is not None:
        yield _starts(f"{client.name} (plugin)", command, install)


def _content(kind: Kind, path: Path) -> dict[str, Any]:
    """What a client's file holds, nothing if there is none. Raises BadInputError."""
    from contextstash.base.files import read_regular
    from contextstash.clients.configuration_files import content

    try:
        text = read_regular(path).decode() if path.is_file() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"{path} cannot be read: {error}") from error
    return content(kind, text, str(path))


def _command_of(entry: object) -> object:
    """The program in our entry in a client's file."""
    named = entry.get("command") if isinstance(entry, dict) else None
    return named[0] if isinstance(named, list) and named else named


def _starts(what: str, named: object, install: str) -> Finding:
    """Whether what a client starts is there; its name may be anything."""
    command = shown(named)
    if shutil.which(command) is None:
        return Finding(what, "wrong", f"its command does not exist: {command}", install)
    return Finding(what, "ok", f"starts {command}")


def _round_trip(_: Location | None) -> Findings:
    """Whether a server starts, loads its vocabulary and answers as it should."""
    from contextstash.clients.install import own_command
    from contextstash.mcp.stdio import round_trip

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        command = [*own_command(), "serve", "--db", str(Path(folder) / "doctor.db")]
        tools, tokens = asyncio.run(round_trip(command, ROUND_TRIP_SECONDS))
    yield Finding("round trip", "ok", f"over stdio: {tools} tools, one call ({tokens} tokens)")
