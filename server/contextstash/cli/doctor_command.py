"""`contextstash doctor`: check the installation on this machine, and advise on each problem."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from contextstash import __version__
from contextstash.cli.console import echo, echo_json
from contextstash.cli.options import DATABASE, JSON, settings_from
from contextstash.configuration.setting_layers import shown
from contextstash.outputs.counts import counted
from contextstash_storage.errors import BadInputError, ContextstashError

if TYPE_CHECKING:
    from contextstash.clients.client import Client, Machine
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
    for subject, check in CHECKS.items():
        for finding in _safely(subject, check, db):
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


def _safely(what: str, check: Callable[[Location | None], Findings], database: Location | None) -> Findings:
    """The findings of a check. An error in the check is a finding too, about `what`."""
    try:
        yield from check(database)
    except ContextstashError as error:
        yield Finding(what, "wrong", str(error), "Fix what the message names.")
    except Exception as error:
        yield Finding("this check", "wrong", f"failed: {type(error).__name__}: {error}", "Please report it.")


def _program(_: Location | None) -> Findings:
    """The version, and where it is from."""
    from contextstash.clients.installation import described

    yield Finding("program", "ok", f"{__version__}, {described()}")


def _database(location: Location | None) -> Findings:
    from contextstash.configuration.database import database_key, open_database
    from contextstash.configuration.locations import default_database
    from contextstash.results import unread_line
    from contextstash_storage.sqlite.health import look_at

    async def unread() -> tuple[int, int]:
        async with await open_database(path) as store:
            proxied = await store.recent_proxied(time.time() - UNREAD_SECONDS, 1_000)
            return await store.session_count(), sum(state.unread for _, state in proxied)

    path = location or default_database()
    if not isinstance(path, Path):
        yield Finding("database", "ok", f"{path}, {counted(asyncio.run(unread())[0], 'session')}")
        return
    if not path.exists():
        yield Finding("database", "note", f"{path} does not exist yet", "The first use creates it.")
        return
    health = look_at(path, database_key)
    is_whole, size = health.check == "ok", f"{path.stat().st_size / 1e6:.1f} MB"
    says = f"{path}, {size}, {counted(health.sessions, 'session')}, quick check: {health.check}"
    advice = "" if is_whole else "Move it away and restore a backup."
    yield Finding("database", "ok" if is_whole else "wrong", says, advice)
    for session, what in health.damaged:
        yield Finding(f"session {session}", "wrong", what, "Restore a backup, or export what can be read.")
    if health.damaged:
        whole = health.sessions - len(health.damaged)
        yield Finding("sessions", "note", f"all others are whole: {whole:,} of {health.sessions:,}")
    yield Finding("version", "ok", f"the database has this program's format, number {health.version}")
    yield from _encryption(health.encrypted)
    mode = stat.S_IMODE(path.stat().st_mode)
    if sys.platform != "win32" and mode & 0o077:
        yield Finding("permissions", "wrong", f"other users may read the database ({mode:o})", f"chmod 600 {path}")
    if is_whole and (many := asyncio.run(unread())[1]):
        yield Finding("proxy", "wrong", unread_line(many), f"Look into {path.with_name('proxy.log')}.")


def _encryption(encrypted: bool) -> Findings:
    """Whether the file is encrypted; nothing for those who have not asked for it."""
    from contextstash.configuration.database import key_source, shown

    source = key_source(os.environ)
    if encrypted:
        yield Finding("encryption", "ok", f"the database is encrypted; its key: {shown(source or '')}")
    elif source is not None:
        says = f"the database can be read without a key, though encryption_key is set ({shown(source)})"
        yield Finding("encryption", "wrong", says, "End all clients, then: contextstash encrypt")


def _settings(_: Location | None) -> Findings:
    """The files in force, and whether data may leave this machine: for any agent, then for agents that differ."""
    from contextstash.configuration.consent import network_use
    from contextstash.window.settings import resolve_settings

    remarks: list[str] = []
    found = settings_from(None, (), remarks.append)
    agents = found.agents()
    for agent in (None, *agents):
        resolve_settings(found.settings_layer(agent))
    places = [layer.name for layer in found.layers()]
    own = f"; also for {counted(len(agents), 'agent')}" if agents else ""
    yield Finding("settings", "ok", f"from {', '.join(places) or 'defaults only'}{own}")
    for remark in remarks:
        yield Finding("project's settings", "note", remark)
    use = network_use(found, os.environ)
    yield Finding("network", "note" if use.may_leave else "ok", use.sentence, use.detail)
    for agent in agents:
        its = network_use(found, os.environ, agent)
        if its.sentence != use.sentence:
            yield Finding(f"network, agent {shown(agent, 40)}", "note" if its.may_leave else "ok", its.sentence)


def _clients(_: Location | None = None) -> Findings:
    from contextstash.clients.client import Machine, clients

    machine = Machine.this()
    found = [finding for client in clients() for finding in _of_client(client, machine)]
    yield from found
    if not found:
        yield Finding("clients", "note", "contextstash is not installed in any client", "contextstash install CLIENT")


def _of_client(client: Client, machine: Machine) -> Findings:
    """What is installed in a client: a bundle, a server with hooks, a plugin."""
    from contextstash.clients.configuration_files import content
    from contextstash.clients.install import SERVER

    install = f"contextstash install {client.name}"
    if client.has_plugin(machine):
        off = client.bundle.off(machine) if client.bundle else None
        says = "the mod that answers compactions may load" if off is None else f"compactions are the client's: {off}"
        yield Finding(f"{client.name} (plugin)", "note" if off else "ok", f"its server and hooks are there; {says}")
    if (entry := client.entry) is not None:
        path = entry.file(machine)
        try:
            text = _text(path)
            servers = content(entry.kind, text, str(path)).get(entry.key) if text is not None else None
        except (OSError, UnicodeDecodeError, BadInputError) as error:
            yield Finding(client.name, "wrong", f"{path} cannot be read: {error}", "Correct the file.")
            return
        if isinstance(servers, dict) and SERVER in servers:
            yield _starts(client.name, _command_of(servers[SERVER]), install)
            yield from _hooks(client, machine)
    if (plugin := client.plugin) is not None and (command := plugin.installed(machine)) is not None:
        yield _starts(f"{client.name} (plugin)", command, install)


def _text(path: Path) -> str | None:
    """The text of a client's file, None if there is none."""
    from contextstash.base.files import read_regular

    return read_regular(path).decode() if path.is_file() else None


def _hooks(client: Client, machine: Machine) -> Findings:
    """The finding for our hooks in a client that can have them."""
    from contextstash.clients.install import missing_hooks

    hooks, what = client.hooks, f"{client.name} hooks"
    if hooks is None or hooks.file is None:
        return
    path = hooks.file(machine)
    try:
        settings: Mapping[str, Any] = json.loads(_text(path) or "{}")
    except (OSError, ValueError) as error:
        yield Finding(what, "wrong", f"{path} cannot be read: {error}", "Correct the file.")
        return
    missing = missing_hooks(client, machine, settings)
    if len(missing) == len(hooks.events):
        says = "not installed: new outputs stay long, and a new window gets no hand-off"
    else:
        says = f"missing for {', '.join(missing)}" if missing else f"installed for {', '.join(hooks.events)}"
    advice = f"contextstash install {client.name}" if missing else hooks.remark or ""
    yield Finding(what, "note" if missing else "ok", says, advice)


def _command_of(entry: object) -> object:
    """The program in our entry in a client's file."""
    named = (entry.get("command") or entry.get("cmd")) if isinstance(entry, dict) else None
    return named[0] if isinstance(named, list) and named else named


def _starts(what: str, named: object, install: str) -> Finding:
    """Whether what a client starts is there; its name may be anything."""
    command = shown(named)
    if shutil.which(command) is None:
        return Finding(what, "wrong", f"its command does not exist: {command}", install)
    return Finding(what, "ok", f"starts {command}")


def _round_trip(_: Location | None) -> Findings:
    """Whether a server starts, loads its vocabulary and answers as it should."""
    from contextstash.clients.installation import own_command
    from contextstash.mcp.stdio import round_trip

    started = time.perf_counter()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        command = [*own_command(), "serve", "--db", str(Path(folder) / "doctor.db")]
        tools, tokens = asyncio.run(round_trip(command, ROUND_TRIP_SECONDS))
    took = f"{time.perf_counter() - started:.1f} s"
    yield Finding(ROUND_TRIP, "ok", f"{tools} tools, one call ({tokens} tokens), {took}")


ROUND_TRIP = "round trip over stdio"

CHECKS: Mapping[str, Callable[[Location | None], Findings]] = {
    "program": _program,
    "database": _database,
    "settings": _settings,
    "clients": _clients,
    ROUND_TRIP: _round_trip,
}
"""The checks, each with the subject of its finding if it fails."""
