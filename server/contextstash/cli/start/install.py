"""`contextstash install`: add contextstash to a client's own configuration."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from contextstash.cli.options import DatabaseType, tokens
from contextstash.cli.start.client_changes import (
    CLIENT_NAMES,
    CLIENT_OR_ALL,
    DIFF,
    DRY_RUN,
    SCOPE,
    YES,
    apply_all,
    confirm_changes,
)
from contextstash.display.visible_text import visible
from contextstash_storage.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from contextstash.clients.client import Scope
    from contextstash_storage.databases import Location


HAS_PLUGIN = (
    "Our plugin is in this client already, with the server and the hooks: nothing was written, as both would be there"
    " twice. To have them in this project alone: contextstash uninstall claude-code"
)


@click.command()
@CLIENT_OR_ALL
@click.option("--hooks", is_flag=True, help="Also install hooks: they archive large outputs and write hand-offs.")
@click.option("--statusline", is_flag=True, help="Also make ours the status line of claude-code.")
@click.option(
    "--db",
    type=DatabaseType(),
    metavar="DATABASE",
    envvar="CONTEXTSTASH_DB",
    help="The database that server and hooks use there: a file, or postgresql://… [default: in the user's data folder]",
)
@click.option("--window", type=tokens, metavar="TOKENS", help="Where the client compacts, such as 100k.")
@SCOPE
@YES
@DRY_RUN
@DIFF
def install(
    client: str | None,
    hooks: bool,
    statusline: bool,
    db: Location | None,
    window: int | None,
    scope: Scope,
    **confirmation: bool,
) -> None:
    """Add contextstash to CLIENT's own configuration. Safe to repeat; uninstall removes it.

    CLIENT is claude-code, claude-desktop, codex, cursor, vscode, gemini, goose, opencode or pi; without it,
    contextstash is added to each of them that is on this machine, with those of the options that it has.
    """
    if client is not None:
        _install(client, confirmation, hooks=hooks, statusline=statusline, db=db, window=window, scope=scope)
        return
    from contextstash.clients.client import Machine, found_clients

    machine = Machine.this()
    found = [each for each in found_clients(machine) if each.has_place(scope) and not each.has_plugin(machine)]
    if not found:
        raise BadInputError(
            f"No client was found on this machine. Choose from: {', '.join(CLIENT_NAMES)}."
            " See: contextstash install --help"
        )
    for each in found:
        click.echo(f"{each.name}:")
        _install(
            each.name,
            confirmation,
            hooks=hooks and each.hooks is not None,
            statusline=statusline and each.has_status_line,
            db=db,
            window=window if each.window else None,
            scope=scope,
        )


def _install(
    client: str,
    confirmation: Mapping[str, bool],
    *,
    hooks: bool,
    statusline: bool,
    db: Location | None,
    window: int | None,
    scope: Scope,
) -> None:
    from contextstash.clients.client import Machine
    from contextstash.clients.client import client as client_of
    from contextstash.clients.install import apply_install, other_status_line, plan_install, window_setting
    from contextstash.clients.installation import own_command

    # Clients run their servers and hooks in other folders, and some without this shell's environment.
    database = db.absolute() if isinstance(db, Path) else db
    if database is not None and not isinstance(database, Path) and database.password:
        raise BadInputError(
            "The address holds a password, which would be written into the client's configuration. Leave it out, and"
            " put it into ~/.pgpass."
        )
    if window is not None and (remark := window_setting(client_of(client)).remark_on(window)):
        click.echo(remark, err=True)
    machine = Machine.this()
    if scope == "project" and client_of(client).has_plugin(machine):
        raise BadInputError(HAS_PLUGIN)
    wants_line = statusline
    statusline = wants_line and _may_replace(other_status_line(client_of(client), scope, machine))
    changes = plan_install(
        client_of(client),
        scope,
        machine,
        own_command(),
        hooks=hooks,
        statusline=statusline,
        database=database,
        window=window,
    )
    if not any(change.needed for change in changes):
        parts = ["the server", *["hooks"] * hooks, *["the status line"] * statusline, *["the window"] * bool(window)]
        click.echo(f"contextstash is already installed in {client} ({', '.join(parts)}): {changes[0].path}")
        return
    if confirm_changes(changes, **confirmation):
        apply_all(changes, apply_install)
        without = " without the status line, which stays as it was" if wants_line and not statusline else ""
        click.echo(f"Installed{without}. Restart {client} to use it; contextstash uninstall {client} removes it.")
        for line in _remarks(client, hooks, window, database):
            click.echo(line)


def _remarks(client: str, hooks: bool, window: int | None, database: Location | None) -> Iterator[str]:
    from contextstash.clients.client import client as client_of

    its_hooks = client_of(client).hooks
    if database is not None:
        yield f"It uses the database {database}."
    if hooks and its_hooks and (remark := its_hooks.remark):
        yield remark
    if window is not None and not hooks and client_of(client).bundle is None:
        yield f"For a hand-off after each compaction: contextstash install {client} --hooks"


def _may_replace(line: str | None) -> bool:
    """Whether ours may become the status line; if there is another, the user is asked, also with --yes."""
    if line is None:
        return True
    shown = visible(line)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        click.echo(f"The status line stays as it is: {shown}. Run this in a terminal to be asked.", err=True)
        return False
    return click.confirm(f"There is a status line already: {shown}. Replace it?", err=True)
