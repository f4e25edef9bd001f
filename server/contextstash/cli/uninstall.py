"""`contextstash uninstall`: take contextstash out of a client's configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from contextstash.cli.client_changes import CLIENT, DRY_RUN, SCOPE, YES, agreed, apply_all

if TYPE_CHECKING:
    from contextstash.hosts.install.clients import Scope


@click.command()
@CLIENT
@SCOPE
@YES
@DRY_RUN
def uninstall(client: str, scope: Scope, yes: bool, dry_run: bool) -> None:
    """Take contextstash out of CLIENT's configuration again, to the byte if nobody changed it since."""
    from contextstash.hosts.install.changes import apply_uninstall, plan_uninstall
    from contextstash.hosts.install.clients import CLIENTS, Machine

    changes = plan_uninstall(CLIENTS[client], scope, Machine.this())
    if not any(change.needed for change in changes):
        click.echo(f"contextstash is not installed in {client}: {changes[0].path}")
        return
    if agreed(changes, yes, dry_run):
        apply_all(changes, apply_uninstall)
        click.echo("Uninstalled. What was recorded stays: contextstash sessions")
