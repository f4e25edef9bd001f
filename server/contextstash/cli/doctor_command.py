"""`contextstash doctor`: check the installation on this machine, and advise on each problem; find stored secrets."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from contextstash import __version__
from contextstash.cli.console import echo_json, print_table, say
from contextstash.cli.options import DATABASE, JSON, settings_from
from contextstash.configuration.setting_layers import Configuration, shown
from contextstash.outputs.counts import counted
from contextstash_storage.errors import BadInputError, ContextstashError

if TYPE_CHECKING:
    from contextstash.clients.client import Client, Machine, Scope
    from contextstash_storage.databases import Location
    from contextstash_storage.postgres.address import Address
    from contextstash_storage.records import Session
    from contextstash_storage.sqlite.store import SqliteStore

ROUND_TRIP = "round trip over stdio"
ROUND_TRIP_SECONDS = 30.0
"""About as long as clients wait for a server to start; a slower one is reported as failing."""

LABELS = {"ok": "ok  ", "note": "note", "wrong": "BAD "}


@dataclass(frozen=True)
class Finding:
    """The result of one check: `state` is ok, note or wrong; `advice` says what to do."""

    what: str
    state: str
    says: str
    advice: str = ""


@click.command()
@click.option("--secrets", is_flag=True, help="Only look for keys and passwords in what is stored.")
@DATABASE
@JSON
def doctor(db: Location | None, secrets: bool, as_json: bool) -> int:
    """Check the database, the tokenizer, the clients' configurations and a round trip over stdio.

    Exit code 1 if something is wrong.
    """
    from contextstash.configuration.locations import default_database

    found: list[Finding] = []
    if secrets:
        return _report_secrets(db or default_database(), as_json=as_json)
    for check in (_program, lambda: _database(db or default_database()), _vocabulary, _settings, _clients, _round_trip):
        for finding in _safely(check, ROUND_TRIP if check is _round_trip else "settings and files"):
            found.append(finding)
            if not as_json:
                _print(finding)
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in found], indent=2, ensure_ascii=False))
    bad = sum(finding.state == "wrong" for finding in found)
    if not as_json:
        click.echo(f"{bad} of {len(found)} checks found a problem." if bad else "No problems found.")
    return 1 if bad else 0


def _program() -> Iterator[Finding]:
    """The version, where it is from, and the commands that upgrade it. Nothing is downloaded to find that out."""
    from contextstash.clients.installation import this_installation

    installation = this_installation()
    advice = f"To upgrade: {' && '.join(installation.upgrade)}" if installation.upgrade else ""
    yield Finding("program", "ok", f"{__version__}, {installation.described}", advice)


def _print(finding: Finding) -> None:
    colour = {"ok": "green", "note": "yellow", "wrong": "red"}[finding.state]
    say(f" {finding.what}: {finding.says}", label=LABELS[finding.state], colour=colour, indent=5)
    if finding.advice:
        say(f"      {finding.advice}", indent=6)


def _safely(check: Callable[[], Iterator[Finding]], what: str) -> Iterator[Finding]:
    """The findings of a check. An error in the check is a finding too, about `what`."""
    try:
        yield from check()
    except ContextstashError as error:
        yield Finding(what, "wrong", str(error), "Fix what the message names.")
    except Exception as error:
        yield Finding("this check", "wrong", f"failed: {type(error).__name__}: {error}", "Please report it.")


def _database(path: Location) -> Iterator[Finding]:
    if not isinstance(path, Path):
        yield from _server(path)
        return
    if not path.exists():
        yield Finding("database", "note", f"{path} does not exist yet", "The first use creates it.")
        return
    from contextstash.automatic_retention import news
    from contextstash.configuration.encryption_key import database_key
    from contextstash_storage.sqlite.health import look_at

    health = look_at(path, database_key)
    yield Finding(
        "database",
        "ok" if health.check == "ok" else "wrong",
        f"{path}, {path.stat().st_size / 1e6:.1f} MB, {counted(health.sessions, 'session')}, quick check:"
        f" {health.check}",
        "" if health.check == "ok" else "Move it away and restore a backup.",
    )
    for session, what in health.damaged:
        yield Finding(f"session {session}", "wrong", what, "Restore a backup, or export what can be read.")
    if health.damaged:
        whole = health.sessions - len(health.damaged)
        yield Finding("sessions", "note", f"all others are whole: {whole:,} of {health.sessions:,}")
    yield Finding("version", "ok", f"the database has this program's format, number {health.version}")
    yield from _encryption(health.encrypted)
    yield from _deleted(health.sources)
    if said := news(path, is_read=sys.stdout.isatty()):
        yield Finding("retention", "note", said.removeprefix("Retention: "))
    mode = stat.S_IMODE(path.stat().st_mode)
    if sys.platform != "win32" and mode & 0o077:
        yield Finding("permissions", "wrong", f"other users may read the database ({mode:o})", f"chmod 600 {path}")
    if health.check == "ok":
        yield from _proxied(path)  # last: whoever opens the database takes the others' rights from its file


UNREAD_SECONDS = 7 * 86_400
"""How long requests that could not be read are a finding: as long as a receipt goes back."""


def _proxied(path: Path) -> Iterator[Finding]:
    """Whether requests that went through the proxy lately could not be read."""
    from contextstash.configuration.database import open_database
    from contextstash.queries.proxy_report import unread_line

    async def unread() -> int:
        async with await open_database(path) as store:
            return sum(state.unread for _, state in await store.recent_proxied(time.time() - UNREAD_SECONDS, 1_000))

    if found := asyncio.run(unread()):
        yield Finding("proxy", "wrong", unread_line(found), f"Look into {path.with_name('proxy.log')}.")


def _encryption(encrypted: bool) -> Iterator[Finding]:
    """Whether the file is encrypted; nothing for those who have not asked for it."""
    from contextstash.configuration.encryption_key import key_source, shown

    source = key_source(os.environ)
    if encrypted:
        yield Finding("encryption", "ok", f"the database is encrypted; its key: {shown(source or '')}")
    elif source is not None:
        says = f"the database can be read without a key, though encryption_key is set ({shown(source)})"
        yield Finding("encryption", "wrong", says, "End all clients, then: contextstash encrypt")


def _deleted(sources: Sequence[tuple[str, str, str]]) -> Iterator[Finding]:
    """Sessions whose transcripts their clients have deleted: they exist here alone."""
    from contextstash.clients.projects import deleted_by

    gone = [(session, changed, day) for source, session, changed in sources if (day := deleted_by(source))]
    if gone:
        session, changed, _ = gone[0]
        says = (
            f"{counted(len(gone), 'session')} deleted by the client by {max(day for *_, day in gone)}, kept here whole"
        )
        yield Finding("transcripts", "ok", f"{says}; the newest: {session}, last recorded on {changed[:10]}")


def _server(address: Address) -> Iterator[Finding]:
    """The findings for a database on a server, which is opened as for a command."""
    from contextstash.configuration.database import open_database

    async def sessions() -> int:
        async with await open_database(address) as store:
            return (await store.mark()).sessions

    yield Finding("database", "ok", f"{address}, {counted(asyncio.run(sessions()), 'session')}")


def _vocabulary() -> Iterator[Finding]:
    from contextstash.tokenizer import count_with

    for name in ("o200k_base", "cl100k_base"):
        count_with(name)("contextstash counts tokens")
        yield Finding(f"vocabulary {name}", "ok", "loaded, and its checksum is right")


def _settings() -> Iterator[Finding]:
    from contextstash.clients.projects import project_folder
    from contextstash.configuration.locations import AGENTS_FOLDER, settings_folders
    from contextstash.window.settings import resolve_settings

    remarks: list[str] = []
    found = settings_from(None, (), remarks.append)
    resolve_settings(found.settings_layer())
    folders = [folder / AGENTS_FOLDER for folder in settings_folders(project_folder(os.environ))]
    files = {path.stem for folder in folders for path in folder.glob("*.y*ml")}
    agents = sorted(files | {agent for folder in found.folders for agent in folder.file[1]})
    for agent in agents:
        resolve_settings(found.settings_layer(agent))
    places = [layer.name for layer in found.layers()]
    own = f"; {counted(len(files), 'file')} with settings of one agent" if files else ""
    yield Finding("settings", "ok", f"from {', '.join(places) or 'defaults only'}{own}")
    for remark in remarks:
        yield Finding("project's settings", "note", remark)
    yield from _network(found, agents)


def _network(found: Configuration, agents: list[str]) -> Iterator[Finding]:
    """Whether data may leave this machine: for sessions of any agent, then for agents that differ."""
    from contextstash.configuration.consent import network_use

    use = network_use(found, os.environ)
    yield Finding("network", "note" if use.may_leave else "ok", use.sentence, use.detail)
    for agent in agents:
        its = network_use(found, os.environ, agent)
        if its.sentence != use.sentence:
            yield Finding(f"network, agent {shown(agent, 40)}", "note" if its.may_leave else "ok", its.sentence)


def _clients() -> Iterator[Finding]:
    from contextstash.base.regular_files import read_regular
    from contextstash.clients.client import Machine, clients
    from contextstash.clients.configuration_files import content
    from contextstash.clients.install import SERVER

    machine = Machine.this()
    installed = 0
    for client in clients():
        if client.has_plugin(machine):
            installed += 1
            off = client.bundle.off(machine) if client.bundle else None
            says = (
                "the mod that answers compactions may load" if off is None else f"compactions are the client's: {off}"
            )
            yield Finding(f"{client.name} (plugin)", "note" if off else "ok", f"its server and hooks are there; {says}")
            yield from _status_line(client, "user", machine)
        for scope, place in client.entry.files.items() if client.entry else ():
            path = place(machine)
            if not path.is_file():
                continue
            try:
                text = read_regular(path).decode()
                servers = content(client.entry.kind, text, str(path)).get(client.entry.key) if client.entry else None
            except (OSError, UnicodeDecodeError, BadInputError) as error:
                yield Finding(
                    f"{client.name} ({scope})", "wrong", f"{path} cannot be read: {error}", "Correct the file."
                )
                continue
            if isinstance(servers, dict) and SERVER in servers:
                installed += 1
                yield _installed(client.name, scope, servers[SERVER])
                yield from _hooks(client, scope, machine)
                yield from _status_line(client, scope, machine)
    if not installed:
        yield Finding("clients", "note", "contextstash is not installed in any client", "contextstash install CLIENT")


def _hooks(client: Client, scope: Scope, machine: Machine) -> Iterator[Finding]:
    """The finding for our hooks in a client that can have them."""
    from contextstash.base.regular_files import read_regular
    from contextstash.clients.install import missing_hooks

    if client.hooks is None:
        return
    hooks, name = client.hooks, client.name
    path = hooks.file(machine, scope)
    try:
        settings = json.loads(read_regular(path)) if path.is_file() else {}
    except (OSError, ValueError) as error:
        yield Finding(f"{name} ({scope}) hooks", "wrong", f"{path} cannot be read: {error}", "Correct the file.")
        return
    missing = missing_hooks(client, settings)
    if len(missing) == len(hooks.events):
        says = "not installed: new outputs stay long, and a new window gets no hand-off"
    else:
        says = f"missing for {', '.join(missing)}" if missing else f"installed for {', '.join(hooks.events)}"
    advice = f"contextstash install {name} --hooks" if missing else hooks.remark or ""
    yield Finding(f"{name} ({scope}) hooks", "note" if missing else "ok", says, advice)


def _status_line(client: Client, scope: Scope, machine: Machine) -> Iterator[Finding]:
    """The finding for our status line in a client; none if it has another one, or none."""
    import shlex

    from contextstash.base.regular_files import read_regular
    from contextstash.clients.install import KEY, is_ours, status_line_file

    try:
        line = json.loads(read_regular(status_line_file(client, scope, machine))).get(KEY)
        named = shlex.split(line["command"])[0] if is_ours(line) else None
    except (BadInputError, OSError, ValueError, AttributeError):  # what is wrong with the file the others say
        return
    if named is not None:
        found = _installed(client.name, scope, {"command": named})
        yield replace(found, what=f"{found.what} status line", advice=found.advice and f"{found.advice} --statusline")


def _installed(client: str, scope: str, entry: object) -> Finding:
    """The finding for our entry in a client's file, which may be a project's: its text is not trusted."""
    import shutil

    named = (entry.get("command") or entry.get("cmd")) if isinstance(entry, dict) else None
    command = shown(named[0] if isinstance(named, list) and named else named)
    what = f"{client} ({scope})"
    if shutil.which(command) is None:
        return Finding(what, "wrong", f"its command does not exist: {command}", f"contextstash install {client}")
    return Finding(what, "ok", f"starts {command}")


def _round_trip() -> Iterator[Finding]:
    """Whether a server starts and answers as it should."""
    from contextstash.clients.installation import own_command
    from contextstash.mcp.stdio import round_trip

    started = time.perf_counter()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        # Without a vocabulary, which has a check of its own: loading it takes longer than the rest of the call
        command = [*own_command(), "serve", "--db", str(Path(folder) / "doctor.db"), "--set", "estimator=chars"]
        tools, tokens = asyncio.run(round_trip(command, ROUND_TRIP_SECONDS))
    took = f"{time.perf_counter() - started:.1f} s"
    yield Finding(ROUND_TRIP, "ok", f"{tools} tools, one call ({tokens} tokens), {took}")


READ_AT_ONCE = 500
"""Messages whose bodies are in memory at a time."""

MAX_NAMED = 20
"""Sessions that are named in a terminal: a screen of them. --json names all."""

MAX_PLACES = 3
"""Messages of a session that are named in a terminal: enough to look at some. --json names all, with the kinds."""

KEPT = (
    "The originals are kept for the model alone, but in plain text in the database file {}: whoever reads that file"
    " reads them. To store none from now on: contextstash config set secrets=drop. To remove those that are stored:"
    " contextstash delete SESSION."
)


@dataclass(frozen=True)
class Holder:
    """A session with secrets in its messages; its title is masked. `messages`: the kinds of secrets in each message,
    by its position."""

    session_id: str
    title: str | None
    secrets: int
    messages: dict[int, list[str]]


def _report_secrets(path: Location, *, as_json: bool) -> int:
    """Print what is stored."""
    if not isinstance(path, Path):
        raise BadInputError("--secrets reads a database file.")
    if not path.exists():
        raise BadInputError(f"There is no database {path}.")
    kinds, holders = asyncio.run(_looked_at(path))
    if as_json:
        echo_json({"kinds": kinds, "sessions": len(holders), "found_in": [asdict(each) for each in holders]})
    else:
        _print_secrets(kinds, holders)
        if kinds:
            say(KEPT.format(path))
    return 0


def _print_secrets(kinds: Counter[str], holders: list[Holder]) -> None:
    """The kinds, and the sessions that hold them, those with the most first."""
    if not kinds:
        click.echo("No secrets found.")
        return
    for kind, count in kinds.most_common():
        noun, in_, where = kind.partition(" in ")
        click.echo(f"{count:7,} {noun}{'s' * (count != 1)}{in_}{where}")
    click.echo(f"{counted(kinds.total(), 'secret')} in {counted(len(holders), 'session')}:")
    rows = [(each.session_id, each.secrets, _places(each), each.title or "") for each in holders[:MAX_NAMED]]
    print_table(["session", "secrets", "in messages", "title"], rows)
    example = holders[0]
    click.echo(f"To see one: contextstash show {example.session_id} --message {min(example.messages)}")
    if len(holders) > MAX_NAMED:
        click.echo(f"and {counted(len(holders) - MAX_NAMED, 'more session')}: contextstash doctor --secrets --json")


def _places(holder: Holder) -> str:
    first = sorted(holder.messages)[:MAX_PLACES]
    return ", ".join(map(str, first)) + ", …" * (len(holder.messages) > MAX_PLACES)


async def _looked_at(path: Path) -> tuple[Counter[str], list[Holder]]:
    """The kinds of secrets in the messages of all owners, and the sessions that hold them."""
    from contextstash.configuration.encryption_key import database_key
    from contextstash.queries.sessions import title_of
    from contextstash.safety.secret_masks import masked
    from contextstash.session.access import Access
    from contextstash_storage.sqlite import open_sqlite

    async with await open_sqlite(path, find_key=database_key) as store:
        kinds: Counter[str] = Counter()
        holders: list[Holder] = []
        for owner in await store.owners():
            own = store.for_owner(owner)
            for session, messages in await _by_session(own):
                if found := Counter(kind for each in messages.values() for kind in each):
                    kinds += found
                    title = await title_of(Access(own), session)
                    shown = None if title is None else masked(title)
                    holders.append(Holder(session.session_id, shown, found.total(), messages))
        holders.sort(key=lambda each: -each.secrets)
        return kinds, holders


async def _by_session(store: SqliteStore) -> list[tuple[Session, dict[int, list[str]]]]:
    """Each session with the kinds of secrets in its messages, by their positions."""
    from contextstash.safety.secret_masks import secrets_of

    found = []
    before: str | None = None
    while page := await store.list_sessions(limit=READ_AT_ONCE, before=before):
        for session in page:
            kinds: dict[int, list[str]] = {}
            for first in range(0, session.counters.messages, READ_AT_ONCE):
                last = first + READ_AT_ONCE - 1
                read: list[Any] = await store.read_messages(session.session_id, first=first, last=last)
                kinds |= {each.seq: its for each in read if (its := list(secrets_of(each.body)))}
            found.append((session, kinds))
        before = page[-1].session_id
    return found
