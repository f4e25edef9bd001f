"""`contextstash install`: write contextstash into a client's own configuration, shown before it is written."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from contextstash.cli.client_changes import CLIENT, DRY_RUN, SCOPE, YES, agreed, apply_all

if TYPE_CHECKING:
    from contextstash.hosts.install.clients import Scope


@click.command()
@CLIENT
@click.option("--hooks", is_flag=True, help="The client's hooks too: large outputs archived, hand-offs given.")
@SCOPE
@YES
@DRY_RUN
def install(client: str, hooks: bool, scope: Scope, yes: bool, dry_run: bool) -> None:
    """Write contextstash into CLIENT's own configuration. Safe to repeat; uninstall takes it back."""
    from contextstash.hosts.install.changes import apply_install, plan_install
    from contextstash.hosts.install.client_hooks import HOOKS
    from contextstash.hosts.install.clients import CLIENTS, Machine, own_command

    changes = plan_install(CLIENTS[client], scope, Machine.this(), own_command(), hooks=hooks)
    if not any(change.needed for change in changes):
        click.echo(f"contextstash is installed in {client} already: {changes[0].path}")
        return
    if agreed(changes, yes, dry_run):
        apply_all(changes, apply_install)
        click.echo(f"Installed. Restart {client} to use it; contextstash uninstall {client} takes it back.")
        if os.environ.get("CONTEXTSTASH_DB"):
            click.echo(f"CONTEXTSTASH_DB is set here: set it where {client} starts too, or it uses another database.")
        if hooks and (remark := HOOKS[client].remark):
            click.echo(remark)
