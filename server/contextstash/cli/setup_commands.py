"""Commands on this machine's set-up: doctor, config, demo."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from contextstash.base.files import replace_file
from contextstash.cli.console import echo, echo_json, print_table, tell
from contextstash.cli.options import DATABASE, JSON, settings_from
from contextstash.cli.session_commands import read_output
from contextstash.clients.client import project_folder
from contextstash.configuration.database import SETTINGS_FILE, user_config_folder
from contextstash.configuration.setting_layers import (
    SHOWN,
    TrustedFiles,
    check_names,
    read_pairs,
    settings_in,
    text_of,
)
from contextstash.safety.sanitize import counted, one_line
from contextstash_storage.errors import BadInputError, ContextstashError

if TYPE_CHECKING:
    from contextstash.clients.client import Client
    from contextstash.stash import Stash
    from contextstash_storage.databases import Location
    from contextstash_storage.records import Native

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
    checks = {"database": _database(db), "network": _network(), "clients": _clients(), "round trip": _round_trip()}
    for subject, findings in checks.items():
        for finding in _safely(subject, findings):
            found.append(finding)
            if not as_json:
                label, colour = LABELS[finding.state]
                click.secho(label, fg=colour, nl=False)
                echo(f" {finding.what}: {finding.says}" + f"\n      {finding.advice}" * bool(finding.advice))
    bad = sum(finding.state == "wrong" for finding in found)
    if as_json:
        echo_json([asdict(finding) for finding in found])
    else:
        click.echo(f"{bad} of {len(found)} checks found a problem." if bad else "No problems found.")
    return 1 if bad else 0


def _safely(subject: str, findings: Findings) -> Findings:
    """The findings of a check. An error in the check is a finding too, about its subject."""
    try:
        yield from findings
    except ContextstashError as error:
        yield Finding(subject, "wrong", str(error), "Fix what the message names.")
    except Exception as error:
        yield Finding(subject, "wrong", f"this check failed: {type(error).__name__}: {error}", "Please report it.")


def _database(location: Location | None) -> Findings:
    """Whether it is whole, encrypted if it shall be, and its owner's alone; and what the proxy could not record."""
    from contextstash.configuration.database import (
        data_folder,
        database_key,
        default_database,
        key_source,
        open_database,
    )
    from contextstash.results import unread_line
    from contextstash_storage.sqlite import look_at

    async def in_use(database: Location) -> tuple[int, list[Finding]]:
        """How many sessions there are; and a finding if the proxy could not read requests of the last week."""
        async with await open_database(database) as store:
            proxied = await store.recent_proxied(time.time() - UNREAD_SECONDS, 1_000)
            unread = sum(state.unread for _, state in proxied)
            advice = f"Look into {data_folder(database) / 'proxy.log'}."
            found = [Finding("proxy", "wrong", unread_line(unread), advice)] if unread else []
            return len(await store.find_session_ids("", sys.maxsize)), found

    path = location or default_database()
    if not isinstance(path, Path):
        sessions, found = asyncio.run(in_use(path))
        yield Finding("database", "ok", f"{path}, {counted(sessions, 'session')}")
        yield from found
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
    if is_whole:
        yield from asyncio.run(in_use(path))[1]


def _network() -> Findings:
    """Whether data may leave this machine, by settings that can be read."""
    from contextstash.configuration.setting_layers import network_use

    found = settings_from(None, ())
    for agent in (None, *found.agents()):
        may_leave, sentence, unused = network_use(found, os.environ, agent)
        if agent is None or may_leave:
            what = "network" if agent is None else f"network, agent {one_line(agent, 40)}"
            yield Finding(what, "note" if may_leave else "ok", sentence, unused)


def _clients() -> Findings:
    """What is installed in each client."""
    from contextstash.clients.client import clients

    found = [finding for client in clients() for finding in _of_client(client)]
    yield from found
    if not found:
        yield Finding("clients", "note", "contextstash is not installed in any client", "contextstash install CLIENT")


def _of_client(client: Client) -> Findings:
    """What is installed in a client: a bundle, a server with hooks, a plugin."""
    from contextstash.clients.install import SERVER, content_of, has_bundle, missing_hooks, plugin_program, value_at

    install = f"contextstash install {client.name}"
    try:
        if has_bundle(client):
            yield Finding(f"{client.name} (plugin)", "ok", "its server, hooks and mod are there")
        found = content_of(client.entry.kind, client.entry.file()) if client.entry else {}
        if server := value_at(found, (client.entry.key, SERVER) if client.entry else ()):
            named = value_at(server, ["command"])
            yield _starts(client.name, named[0] if isinstance(named, list) and named else named, install)
            if (hooks := client.hooks) and hooks.file:
                missing = missing_hooks(client.name, hooks.events, content_of("json", hooks.file()))
                if missing:
                    yield Finding(f"{client.name} hooks", "note", f"missing for {', '.join(missing)}", install)
                elif hooks.remark and str(hooks.file()) not in str(value_at(found, ("hooks", "state"))):
                    yield Finding(f"{client.name} hooks", "note", "not trusted yet", hooks.remark)
    except BadInputError as error:
        yield Finding(client.name, "note", str(error), f"Correct it, or see what to add to it by hand: {install}")
    if (program := plugin_program(client)) is not None:
        yield _starts(f"{client.name} (plugin)", program, install)


def _starts(what: str, named: object, install: str) -> Finding:
    """Whether what a client starts is there; its name may be anything."""
    command = one_line(str(named), SHOWN)
    if shutil.which(command) is None:
        return Finding(what, "wrong", f"its command does not exist: {command}", install)
    return Finding(what, "ok", f"starts {command}")


def _round_trip() -> Findings:
    """Whether a server starts, loads its vocabulary and answers as it should."""
    from contextstash.clients.install import own_command
    from contextstash.mcp.stdio import round_trip

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        command = [*own_command(), "serve", "--db", str(Path(folder) / "doctor.db")]
        tools, tokens = asyncio.run(round_trip(command, ROUND_TRIP_SECONDS))
    yield Finding("round trip", "ok", f"over stdio: {tools} tools, one call ({tokens} tokens)")


@click.group()
def config() -> None:
    """Show and change settings: the effective ones, and the layer that set each."""


@config.command("show")
@JSON
def show(as_json: bool) -> None:
    """Show each effective value, the layer that set it, and whether data may leave this machine."""
    from contextstash.configuration.setting_layers import network_use, without_credentials
    from contextstash.window.settings import PRESETS, UserSettings, resolve_settings

    remarks: list[str] = []
    configuration = settings_from(None, (), remarks.append)
    (_, network, unused), layers = network_use(configuration, os.environ), configuration.layers()
    resolved = resolve_settings(*(layer.values for layer in layers))
    of_preset = dict.fromkeys(PRESETS[resolved.preset], f"preset {resolved.preset}")
    setters = {**of_preset, **{name: layer.name for layer in layers for name in layer.values}}
    values = [
        {"name": name, "value": without_credentials(value), "layer": setters.get(name, "default")}
        for name, value in resolved.model_dump(include=set(UserSettings.model_fields)).items()
    ]
    if as_json:
        echo_json({"settings": values, "network": network, "ignored": remarks})
        return
    print_table(["setting", "value", "set by"], [(each["name"], str(each["value"]), each["layer"]) for each in values])
    for line in (f"{network} {unused}".strip(), *remarks):
        echo(line)


@config.command("set")
@click.argument("pairs", nargs=-1, metavar="KEY=VALUE...")
@click.option("--unset", multiple=True, metavar="KEY", help="Remove a setting; may be given several times.")
def set_(pairs: tuple[str, ...], unset: tuple[str, ...]) -> None:
    """Write settings to your own settings file; its comments and everything else in it stay.

    Example: contextstash config set preset=default-quality window=200000
    """
    if not pairs and not unset:
        raise BadInputError("Nothing to set. Example: contextstash config set window=200000")
    check_names(dict.fromkeys(unset), "--unset")
    written = write_settings({**read_pairs(pairs, "config set"), **dict.fromkeys(unset)})
    for name, value in written.items():
        click.echo(f"{name} is no longer set" if value is None else f"{name} = {value}")
    click.echo(f"Written to {user_config_folder() / SETTINGS_FILE}", err=True)


def write_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Write settings to the user's own file, and take out those that are None. Returns them with their types. Raises
    BadInputError if one is invalid."""
    from contextstash.clients.install import edited
    from contextstash.window.settings import resolve_settings

    resolved = resolve_settings(given)
    values = {name: None if value is None else getattr(resolved, name) for name, value in given.items()}
    file = user_config_folder() / SETTINGS_FILE

    def change(data: MutableMapping[str, Any]) -> None:
        for name in [name for name, value in values.items() if value is None]:
            data.pop(name, None)
        data.update({name: value for name, value in values.items() if value is not None})

    text = edited("toml", text_of(file) or "", change, str(file))
    for values_of_agent in settings_in(text, file).values():
        resolve_settings(values_of_agent)
    replace_file(file, text.encode())
    return values


@config.command("trust")
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option("--yes", is_flag=True, help="Trust without asking.")
def trust(path: Path | None, yes: bool) -> None:
    """Use the settings of a project's file, as long as it does not change.

    A project's contextstash.toml comes from the author of the repository. A file that is not
    trusted is not used. A trusted file that changes has to be accepted again.

    PATH is the file, or the project's folder. [default: the current project]
    """
    trusted = TrustedFiles(user_config_folder())
    file = Path.cwd() / (path or project_folder()).expanduser()
    if file.is_dir():
        file /= SETTINGS_FILE
    if file.name != SETTINGS_FILE:
        raise BadInputError(f"Only {SETTINGS_FILE} of a project can be trusted, not {file}.")
    text = text_of(file, of_user=False)
    if text is None:
        raise BadInputError(f"{file} does not exist.")
    _show(file, text)
    if not yes and not sys.stdin.isatty():
        raise BadInputError("Not a terminal: pass --yes to trust this file without being asked.")
    if not yes:
        click.confirm("Trust this file?", abort=True)
    trusted.add(file, text)
    click.echo(f"Trusted until it changes: {one_line(str(file), SHOWN)}")


def _show(file: Path, text: str) -> None:
    """Print what the file sets. Raises BadInputError if that is invalid."""
    from contextstash.window.settings import resolve_settings

    found = settings_in(text, file)
    for values in found.values():
        resolve_settings(values)
    click.echo(f"{one_line(str(file), SHOWN)} sets:")
    for agent, values in found.items():
        for name, value in values.items():
            click.echo(f"  {f'{one_line(agent, 40)}: ' if agent else ''}{name} = {json.dumps(value, default=str)}")


MAX_QUOTED_LINES = 20
"""Of a text as the model sees it, in the demonstration."""


@click.command()
def demo() -> None:
    """Show what contextstash does, on a session that ships with it: each step is a real call of the service.

    Works in a temporary database; nothing is written elsewhere or sent.
    """
    from contextstash.configuration.setting_layers import Configuration, Layer
    from contextstash.demo import SETTINGS
    from contextstash.stash_opener import StashOpener

    _heading("contextstash: what leaves the model's window never leaves the session")
    with tempfile.TemporaryDirectory(prefix="contextstash-demo-") as folder:
        settings = Configuration().over(Layer("demo", SETTINGS))
        StashOpener(Path(folder) / "demo.db", settings).run(_show_steps)
    echo("\nThis was a temporary database. To use your own sessions: contextstash import")


async def _show_steps(stash: Stash) -> None:
    from contextstash.demo import SESSION_ID, sample_session

    natives = sample_session()
    _heading("1. Record: an agent debugs a small web service")
    tell(await stash.record_messages(natives, session_id=SESSION_ID, whole=True, title="Demonstration"))
    view = (await stash.get_context(SESSION_ID)).messages
    _heading("2. Prune: old tool outputs move from the view to the archive")
    pruned = await stash.prune_tool_outputs(SESSION_ID)
    largest = max(pruned.archived, key=lambda output: output.tokens)
    shown = _tool_results((await stash.get_context(SESSION_ID)).messages)
    call_id, placeholder = next(item for item in shown.items() if largest.handle in item[1])
    tell(pruned)
    echo(f"In place of the largest of {len(pruned.archived)} the model now sees:")
    _quote(placeholder)
    _heading("3. Compact: older messages become your words and a summary")
    compacted = await stash.compact_session(SESSION_ID)
    tell(compacted)
    _quote(_text((await stash.get_context(SESSION_ID)).messages[0]["content"]))
    _heading("4. Retrieve: one output, by its handle")
    text = "".join(page.text for page in await read_output(stash, largest.handle))
    same = _sameness(text, _tool_results(natives)[call_id])
    echo(f"{largest.handle}: {len(text):,} characters, and the original: {same}.")
    _heading("5. Restore: everything returns to the view")
    handles = [str(compacted.summary_id), *(output.handle for output in pruned.archived)]
    tell(await stash.restore_outputs(handles, session_id=SESSION_ID))
    echo(f"The view, and that of step 1: {_sameness((await stash.get_context(SESSION_ID)).messages, view)}.")
    history = (await stash.read_messages(SESSION_ID, limit=len(natives) + 1)).messages
    echo(f"The history, and the file: {_sameness([line.message for line in history], natives)}.")


def _tool_results(natives: list[Native]) -> dict[str, str]:
    """The text of each tool result, by the id of its call."""
    contents = [native["content"] for native in natives if isinstance(native["content"], list)]
    results = [block for content in contents for block in content if block["type"] == "tool_result"]
    return {result["tool_use_id"]: _text(result["content"]) for result in results}


def _text(content: str | list[dict[str, Any]]) -> str:
    return content if isinstance(content, str) else "\n\n".join(part.get("text", "") for part in content)


def _sameness(one: object, other: object) -> str:
    return "identical" if one == other else "DIFFERENT"


def _heading(text: str) -> None:
    click.secho(f"\n{text}", fg="cyan", bold=True)


def _quote(text: str) -> None:
    """The beginning of a text as the model sees it."""
    lines = text.splitlines()
    for line in lines[:MAX_QUOTED_LINES]:
        echo(f"  │ {line}", dim=True)
    if len(lines) > MAX_QUOTED_LINES:
        echo(f"  … and {len(lines) - MAX_QUOTED_LINES} more lines.")
