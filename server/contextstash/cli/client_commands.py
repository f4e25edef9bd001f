"""Commands that put contextstash into a client, and those that clients run: install, uninstall, hook, window."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from contextstash.cli.console import echo
from contextstash.cli.options import DatabaseType, tokens
from contextstash.clients.hooks import run_hook
from contextstash_storage.errors import BadInputError

if TYPE_CHECKING:
    from contextstash.clients.install import Change
    from contextstash_storage.databases import Location

CLIENT_NAMES = ("claude-code", "claude-desktop", "codex", "cursor", "vscode", "gemini", "opencode", "pi")


def confirmation(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a command that changes a client's files."""
    for option in (
        click.option("--dry-run", is_flag=True, help="Only show what would be written."),
        click.option("--yes", is_flag=True, help="Write without asking."),
    ):
        command = option(command)
    return command


@click.command()
@click.argument("client", metavar="[CLIENT]", type=click.Choice(CLIENT_NAMES), required=False)
@click.option(
    "--db",
    type=DatabaseType(),
    metavar="DATABASE",
    envvar="CONTEXTSTASH_DB",
    help="The database that server and hooks use there: a file, or postgresql://… [default: in the user's data folder]",
)
@click.option("--window", type=tokens, metavar="TOKENS", help="Where the client compacts, such as 100k.")
@confirmation
def install(
    client: str | None,
    db: Location | None,
    window: int | None,
    **confirmed: bool,
) -> None:
    """Add contextstash to your configuration of CLIENT: the server, and where there are hooks, those that archive large
    outputs and write hand-offs. Safe to repeat; uninstall removes it.

    CLIENT is claude-code, claude-desktop, codex, cursor, vscode, gemini, opencode or pi; without it,
    contextstash is added to each of them that is on this machine, with those of the options that it has.
    """
    # Clients run their servers and hooks in other folders, and some without this shell's environment.
    database = db.absolute() if isinstance(db, Path) else db
    if database is not None and not isinstance(database, Path) and database.password:
        raise BadInputError(
            "The address holds a password, which would be written into the client's configuration. Leave it out, and"
            " put it into ~/.pgpass."
        )
    if client is not None:
        _install(client, window, database, confirmed)
        return
    from contextstash.clients.client import Machine, found_clients

    found = found_clients(Machine.this())
    if not found:
        raise BadInputError(
            f"No client was found on this machine. Choose from: {', '.join(CLIENT_NAMES)}."
            " See: contextstash install --help"
        )
    for each in found:
        click.echo(f"{each.name}:")
        _install(each.name, window if each.window else None, database, confirmed)


def _install(name: str, window: int | None, database: Location | None, confirmed: Mapping[str, bool]) -> None:
    from contextstash.clients.client import Machine
    from contextstash.clients.client import client as client_of
    from contextstash.clients.install import apply_install, own_command, plan_install, window_setting

    client = client_of(name)
    if window is not None and (remark := window_setting(client).remark_on(window)):
        click.echo(remark, err=True)
    changes = plan_install(client, Machine.this(), own_command(), database=database, window=window)
    if not any(change.needed for change in changes):
        click.echo(f"contextstash is already installed in {name}: {changes[0].path}")
    elif _written(changes, apply_install, **confirmed):
        click.echo(f"Installed. Restart {name} to use it; contextstash uninstall {name} removes it.")
        if database is not None:
            click.echo(f"It uses the database {database}.")
        if client.hooks and client.hooks.remark:
            click.echo(client.hooks.remark)


@click.command()
@click.argument("client", metavar="CLIENT", type=click.Choice(CLIENT_NAMES))
@confirmation
def uninstall(client: str, **confirmed: bool) -> None:
    """Remove contextstash from CLIENT's configuration. An unchanged file gets its former bytes back.

    CLIENT is claude-code, claude-desktop, codex, cursor, vscode, gemini, opencode or pi.
    """
    from contextstash.clients.client import Machine
    from contextstash.clients.client import client as client_of
    from contextstash.clients.install import apply_uninstall, plan_uninstall

    changes = plan_uninstall(client_of(client), Machine.this())
    if not any(change.needed for change in changes):
        click.echo(f"contextstash is not installed in {client}: {changes[0].path}")
    elif _written(changes, apply_uninstall, **confirmed):
        click.echo("Uninstalled. The recorded sessions are kept: contextstash sessions")


def _written(changes: list[Change], apply: Callable[[Change], None], yes: bool, dry_run: bool) -> bool:
    """Show the changes, and write them if --yes or the user says so."""
    for change in changes:
        if change.needed:
            fate = "created" if change.before is None else "deleted" if change.after is None else "changed"
            click.echo(f"{change.path} {'is' if yes and not dry_run else 'would be'} {fate}:")
            for each in change.does:
                echo(f"  {each}")
    if not (yes or dry_run or sys.stdin.isatty()):
        raise BadInputError("Nothing was written, as there is no terminal to ask in: pass --yes to write it.")
    if dry_run or not (yes or click.confirm("Write these changes?", err=True)):
        click.echo("Nothing was written.")
        return False
    for change in changes:
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

    The module contextstash.clients.client_window describes both. Never asks a model. OPTIONS are --db DATABASE.
    """
    from contextstash.clients.client_window import run_window

    return run_window(client, options)
