"""Commands on clients: install, uninstall, run, continue, and those that clients run: hook, window."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from contextstash.cli.console import echo, for_reader
from contextstash.cli.options import DATABASE, SESSION, find_session, opener_options, tokens
from contextstash.clients.client import client as client_of
from contextstash.clients.hooks import run_hook
from contextstash.clients.proxied import MAX_ARGUMENT_BYTES, first_message, run_client
from contextstash.stash_opener import StashOpener
from contextstash_storage.errors import BadInputError, ContextstashError

if TYPE_CHECKING:
    from contextstash.clients.client import Client
    from contextstash.clients.install import Plan
    from contextstash.stash import Stash
    from contextstash_storage.databases import Location
    from contextstash_storage.records import ProxiedSession

DRY_RUN = click.option("--dry-run", is_flag=True, help="Only show what would be written.")
YES = click.option("--yes", is_flag=True, help="Write without asking.")


@click.command()
@click.argument("client", metavar="[CLIENT]", required=False)
@DATABASE
@DRY_RUN
@YES
def install(client: str | None, db: Location | None, **confirmed: bool) -> int:
    """Add contextstash to your configuration of CLIENT: the server, and where there are hooks, those that archive large
    outputs and write hand-offs. Safe to repeat; uninstall removes it.

    CLIENT is claude-code, claude-desktop, codex, cursor, vscode, gemini, opencode or pi; without it,
    contextstash is added to each of them that is on this machine.
    """
    # Clients run their servers and hooks in other folders, and some without this shell's environment.
    database = db.absolute() if isinstance(db, Path) else db
    if database is not None and not isinstance(database, Path) and database.password:
        raise BadInputError(
            "The address holds a password, which would be written into the client's configuration. Leave it out, and"
            " put it into ~/.pgpass."
        )
    from contextstash.clients.client import clients

    found = [each for each in clients() if each.is_on()] if client is None else [client_of(client)]
    if not found:
        raise BadInputError(
            f"No client was found on this machine. Choose from: {', '.join(each.name for each in clients())}."
            " See: contextstash install --help"
        )
    code = 0
    for each in found:
        if client is None:
            click.echo(f"{each.name}:")
        try:
            _install(each, database, confirmed)
        except BadInputError as error:  # with the lines to add by hand; the next client has other files
            echo(f"Error: {error}", err=True)
            code = 1
    return code


def _install(client: Client, database: Location | None, confirmed: Mapping[str, bool]) -> None:
    from contextstash.clients.install import own_command, plan_install

    plan = plan_install(client, own_command(), database)
    if _written(plan, f"contextstash is already installed in {client.name}", **confirmed):
        click.echo(f"Installed. Restart {client.name} to use it; contextstash uninstall {client.name} removes it.")
        if database is not None:
            click.echo(f"It uses the database {database}.")
        if client.hooks and client.hooks.remark:
            click.echo(client.hooks.remark)
    if plan[1]:
        raise BadInputError("\n".join(plan[1]))


@click.command()
@click.argument("client")
@DRY_RUN
@YES
def uninstall(client: str, **confirmed: bool) -> None:
    """Remove contextstash from CLIENT's configuration. An unchanged file gets its former bytes back.

    CLIENT is claude-code, claude-desktop, codex, cursor, vscode, gemini, opencode or pi.
    """
    from contextstash.clients.install import plan_uninstall

    found = client_of(client)
    plan = plan_uninstall(found)
    if _written(plan, f"contextstash is not installed in {found.name}", **confirmed):
        click.echo("Uninstalled. The recorded sessions are kept: contextstash sessions")
    if plan[1]:
        raise BadInputError("\n".join(plan[1]))


def _written(plan: Plan, nothing: str, yes: bool, dry_run: bool) -> bool:
    """Show the changes, and write them if --yes or the user says so; without any, `nothing` is said."""
    from contextstash.clients.install import apply

    if plan == ([], []):
        raise BadInputError("This client has no configuration to which contextstash could be added.")
    changes = [change for change in plan[0] if change.needed]
    if not (changes or plan[1]):
        click.echo(f"{nothing}: {plan[0][0].path}")
    if not changes:
        return False
    for change in changes:
        fate = "created" if change.before is None else "deleted" if change.after is None else "changed"
        click.echo(f"{change.path} {'is' if yes and not dry_run else 'would be'} {fate}:")
        for each in change.does:
            echo(f"  {each}")
    if not (yes or dry_run or sys.stdin.isatty()):
        raise BadInputError("Nothing was written, as there is no terminal to ask in: pass --yes to write it.")
    if dry_run or not (yes or click.confirm("Write these changes?", err=True)):
        click.echo("Nothing was written.")
        return False
    for change in plan[0]:
        try:
            apply(change)
        except OSError as error:
            raise BadInputError(f"{change.path} cannot be written: {error.strerror}.") from error
    return True


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("client")
@click.argument("options", nargs=-1)
def hook(client: str, options: tuple[str, ...]) -> int:
    """Handle an event of CLIENT's hooks (claude-code, codex or gemini), JSON on standard input. Always exits with 0.

    Archives and replaces large tool outputs, reads transcripts, and writes a hand-off after a compaction. OPTIONS are
    --db DATABASE, and --part 2/3 for the part of a hand-off that this hook gives: clients bound what one may add.
    """
    return run_hook(client, options)


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("client")
@click.argument("options", nargs=-1)
def window(client: str, options: tuple[str, ...]) -> int:
    """Answer a compaction of CLIENT (claude-code, opencode or pi): its plugin runs this, JSON on standard input and
    output.

    clients/plugins/README.md describes both. Never asks a model. OPTIONS are --db DATABASE.
    """
    from contextstash.clients.hooks import run_window

    return run_window(client, options)


SECRET_BYTES = 18
"""Of the path that only the client knows: 24 characters, too many to be guessed."""


MAX_SESSIONS = 100
"""Sessions that the lines at the end of a run sum up, and among which that of a folder is looked for."""


@click.command("run", context_settings={"allow_interspersed_args": False})
@click.option("--upstream", metavar="URL", help="The model API. [default: the one that the client would use]")
@click.option("--no-prune", is_flag=True, help="Record the requests, but change none.")
@click.option("--window", type=tokens, metavar="TOKENS", help="Where the client compacts, such as 100k.")
@opener_options
@click.argument("client")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(
    opener: StashOpener,
    upstream: str | None,
    no_prune: bool,
    window: int | None,
    client: str,
    arguments: tuple[str, ...],
) -> int:
    """Start CLIENT (claude, codex or another program) with its requests through a proxy of its own.

    Old tool outputs leave the requests when the provider's cache has expired. Example: contextstash run --window 100k
    claude. What stands behind CLIENT is for it."""
    if sys.platform == "win32":
        raise BadInputError("contextstash run needs a Unix system. Start contextstash proxy, and set the base URL.")
    from contextstash.clients.proxied import launched_client
    from contextstash.configuration.database import data_folder
    from contextstash.proxy.app import check_upstream, proxy_beside
    from contextstash.proxy.edits import ProxyOptions
    from contextstash.results import unread_line
    from contextstash_storage.databases import name_of

    program = _program(client)
    arguments = arguments[arguments[:1] == ("--",) :]
    launched = launched_client(client, upstream)
    proxied = launched.proxied
    assert proxied is not None
    address = check_upstream(upstream or proxied.upstream())
    configured = _is_configured(launched, "not installed in this client, so nothing is pruned")
    secret, project = secrets.token_urlsafe(SECRET_BYTES), str(Path.cwd())
    options = ProxyOptions(address, prune=not no_prune, configured=configured, project=project, secret=secret)
    # The client's server and hooks use the same database. By a variable: all users see a program's arguments.
    db = opener.database
    used = {} if db is None else {"CONTEXTSTASH_DB": name_of(db.absolute() if isinstance(db, Path) else db)}
    started, log_path = time.time(), data_folder(db) / "proxy.log"
    with log_file(log_path) as log:
        with proxy_beside(options, opener, log) as url:
            command, added = proxied.launch(url, (program, *arguments), window)
            code = run_client(command, {**os.environ, **added, **used})
        _report(opener, started)
    if unread := sum(options.unread.values()):
        click.echo(unread_line(unread), err=True)
    if options.unrecorded:
        click.echo(
            f"contextstash: {len(options.unrecorded)} times what went through the proxy could not be recorded at once;"
            f" the last of it may be missing. contextstash import reads the client's own transcript. Why: {log_path}",
            err=True,
        )
    return code


def log_file(path: Path) -> TextIO:
    """The proxy's log to write to: the terminal belongs to the client. Raises BadInputError."""
    from contextstash.base.files import open_log

    try:
        return open_log(path)
    except OSError as error:
        raise BadInputError(f"The log {path} cannot be written: {error.strerror}. Move it away.") from error


def _program(name: str) -> str:
    """The path of a program. Raises BadInputError."""
    if (found := shutil.which(name)) is None:
        raise BadInputError(f"There is no program '{name}' on the PATH.")
    return found


def _is_configured(client: Client, without: str) -> bool:
    """Whether the client has our server; if it has not, says what is the case `without` it, and what to do."""
    from contextstash.clients.install import is_configured

    found = is_configured(client)
    if not found:
        click.echo(f"contextstash: {without}. To change that: contextstash install {client.name}", err=True)
    return found


def _report(opener: StashOpener, started: float) -> None:
    """Print what the proxy sent and saved of the sessions that went through it since then, each from its beginning."""
    from contextstash.request.proxied import report_of

    async def read(stash: Stash) -> Sequence[ProxiedSession]:
        return [state for _, state in await stash.store.recent_proxied(started, MAX_SESSIONS)]

    try:
        states = opener.run(read)
        lines = list(report_of(*states).lines()) if states else []
    except ContextstashError as error:
        lines = [f"No report: {error}"]
    for line in lines:
        click.echo(f"contextstash: {line}", err=True)


@click.command("continue")
@click.argument("client")
@SESSION
@click.option("--print", "only_print", is_flag=True, help="Only print the first message.")
@opener_options
def continue_(opener: StashOpener, client: str, session: str | None, only_print: bool) -> int:
    """Start CLIENT in the session's folder, with the hand-off of SESSION as its first message.

    CLIENT is claude-code, codex or gemini. [default for SESSION: the newest one of this folder, of whichever client,
    else the newest of all] Everything else of the session comes back by search and by handle.
    """
    found = client_of(client)
    if found.continued is None:
        raise BadInputError(f"{client} cannot be started with a first message: see contextstash continue --help")
    program = "" if only_print else _program(found.programs[0])
    message, folder = opener.run(lambda stash: _start(stash, session))
    if only_print:
        click.echo(message)
        return 0
    _is_configured(found, f"{found.name} cannot search the old session yet")
    if folder is None or not Path(folder).is_dir():
        click.echo("The folder of the session is not known, or gone: starting here.", err=True)
    else:
        os.chdir(folder)
    return run_client(found.continued(program, message), os.environ)


async def _start(stash: Stash, named: str | None) -> tuple[str, str | None]:
    """The first message, and the folder of the session if its transcript still names it."""
    from contextstash.clients.follow import ingest

    session_id = await _newest(stash) if named is None else await find_session(stash, named)
    session = await stash.read_session(session_id)
    if session.source is not None:
        try:  # what the client has written since
            await ingest(stash, Path(session.source), reduce=False, wanted=True)
        except FileNotFoundError:
            click.echo("The client has deleted its transcript; the session is kept here.", err=True)
        except (OSError, ContextstashError) as error:
            why = getattr(error, "strerror", None) or error
            click.echo(f"The newest messages may be missing: {session.source} cannot be read: {why}", err=True)
    folder = await stash.project_of(session)
    if not named:
        where = f", in {folder}" if folder else ""
        click.echo(for_reader(f"Continuing session {session_id} of {session.agent or 'a program'}{where}."), err=True)
    text = await stash.hand_off_text(session_id, None)
    if text is None:
        raise BadInputError(f"Session {session_id} has nothing to hand off yet.")
    message = first_message(text, session_id, session.agent)
    if len(message.encode()) > MAX_ARGUMENT_BYTES:
        raise BadInputError("The hand-off is too long for a first message: pass --set handoff_tokens=2000")
    return message, folder


async def _newest(stash: Stash) -> str:
    """The newest session of this folder, of whichever client; without one, the newest of all."""
    from contextstash.clients.current import is_at

    for line in (await stash.list_sessions(limit=MAX_SESSIONS)).sessions:
        if line.parent_session_id is None and is_at(line.project, Path.cwd()):
            return line.session_id
    return await find_session(stash, None)
