"""`contextstash uninstall`: remove contextstash from a client's configuration."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from contextstash.cli.start.client_changes import CLIENT, DIFF, DRY_RUN, SCOPE, YES, apply_all, confirm_changes

if TYPE_CHECKING:
    from contextstash.clients.client import Scope


@click.command()
@CLIENT
@SCOPE
@YES
@DRY_RUN
@DIFF
def uninstall(client: str, scope: Scope, **confirmation: bool) -> None:
    """Remove contextstash from CLIENT's configuration. An unchanged file gets its former bytes back.

    CLIENT is claude-code, claude-desktop, codex, cursor, vscode, gemini, goose, opencode or pi.
    """
    from contextstash.clients.client import Machine
    from contextstash.clients.client import client as client_of
    from contextstash.clients.install import apply_uninstall, plan_uninstall
    from contextstash.configuration.locations import data_folder, user_config_folder

    changes = plan_uninstall(client_of(client), scope, Machine.this())
    if not any(change.needed for change in changes):
        click.echo(f"contextstash is not installed in {client}: {changes[0].path}")
        return
    if confirm_changes(changes, **confirmation):
        apply_all(changes, apply_uninstall)
        click.echo("Uninstalled. The recorded sessions are kept: contextstash sessions")
        folders = [folder for folder in (data_folder(), user_config_folder() / "contextstash") if folder.exists()]
        click.echo(f"What is left, if you want to delete it too: {shlex.join(map(str, folders))}")
