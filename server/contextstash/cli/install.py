"""`contextstash install`: add contextstash to a client's own configuration."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from contextstash.cli.client_changes import CLIENT, DRY_RUN, SCOPE, YES, apply_all, confirm_changes

if TYPE_CHECKING:
    from contextstash.hosts.install.clients import Scope


@click.command()
@CLIENT
@click.option("--hooks", is_flag=True, help="Also install hooks: they archive large outputs and write hand-offs.")
@SCOPE
@YES
@DRY_RUN
def install(client: str, hooks: bool, scope: Scope, yes: bool, dry_run: bool) -> None:
    """Add contextstash to CLIENT's own configuration. Safe to repeat; uninstall removes it."""
    from contextstash.hosts.install.changes import apply_install, plan_install
    from contextstash.hosts.install.client_hooks import HOOKS
    from contextstash.hosts.install.clients import CLIENTS, Machine, own_command

    changes = plan_install(CLIENTS[client], scope, Machine.this(), own_command(), hooks=hooks)
    if not any(change.needed for change in changes):
        click.echo(f"contextstash is already installed in {client}: {changes[0].path}")
        return
    if confirm_changes(changes, yes, dry_run):
        apply_all(changes, apply_install)
        click.echo(f"Installed. Restart {client} to use it; contextstash uninstall {client} removes it.")
        if os.environ.get("CONTEXTSTASH_DB"):
            click.echo(f"CONTEXTSTASH_DB is set in this shell: set it for {client} too, or it uses another database.")
        if hooks and (remark := HOOKS[client].remark):
            click.echo(remark)
