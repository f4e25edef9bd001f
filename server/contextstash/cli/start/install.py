"""`contextstash install`: add contextstash to a client's own configuration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from contextstash.cli.options import DatabaseType, TokensType
from contextstash.cli.start.client_changes import CLIENT, DRY_RUN, SCOPE, YES, apply_all, confirm_changes
from contextstash_storage.errors import BadInputError

if TYPE_CHECKING:
    from contextstash.hosts.install.clients import Scope
    from contextstash_storage.databases import Location


@click.command()
@CLIENT
@click.option("--hooks", is_flag=True, help="Also install hooks: they archive large outputs and write hand-offs.")
@click.option(
    "--db",
    type=DatabaseType(),
    metavar="DATABASE",
    envvar="CONTEXTSTASH_DB",
    help="The database that server and hooks use there: a file, or postgresql://… [default: in the user's data folder]",
)
@click.option("--window", type=TokensType(), metavar="TOKENS", help="Where the client compacts, such as 100k.")
@SCOPE
@YES
@DRY_RUN
def install(
    client: str, hooks: bool, db: Location | None, window: int | None, scope: Scope, yes: bool, dry_run: bool
) -> None:
    """Add contextstash to CLIENT's own configuration. Safe to repeat; uninstall removes it.

    CLIENT is claude-code, claude-desktop, codex, cursor, vscode, gemini, goose or opencode.
    """
    from contextstash.hosts.compaction_points import compaction_setting, remark_on
    from contextstash.hosts.install.changes import apply_install, plan_install
    from contextstash.hosts.install.client_hooks import HOOKS
    from contextstash.hosts.install.clients import CLIENTS, Machine, own_command

    # Clients run their servers and hooks in other folders, and some without this shell's environment.
    database = db.absolute() if isinstance(db, Path) else db
    if database is not None and not isinstance(database, Path) and database.password:
        raise BadInputError(
            "The address holds a password, which would be written into the client's configuration. Leave it out, and"
            " put it into ~/.pgpass."
        )
    if window is not None and (remark := remark_on(compaction_setting(client), window)):
        click.echo(remark, err=True)
    changes = plan_install(
        CLIENTS[client], scope, Machine.this(), own_command(), hooks=hooks, database=database, window=window
    )
    if not any(change.needed for change in changes):
        click.echo(f"contextstash is already installed in {client}: {changes[0].path}")
        return
    if confirm_changes(changes, yes, dry_run):
        apply_all(changes, apply_install)
        click.echo(f"Installed. Restart {client} to use it; contextstash uninstall {client} removes it.")
        if database is not None:
            click.echo(f"It uses the database {database}.")
        if hooks and (remark := HOOKS[client].remark):
            click.echo(remark)
        if window is not None and not hooks:
            click.echo(f"For a hand-off after each compaction: contextstash install {client} --hooks")
