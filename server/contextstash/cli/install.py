"""`contextstash install` and `uninstall`: contextstash in a client's own configuration, shown before it is written."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from contextstash_storage.errors import BadInputError

if TYPE_CHECKING:
    from contextstash.hosts.install.changes import Change
    from contextstash.hosts.install.clients import Scope

NAMES = ("claude-code", "claude-desktop", "codex", "cursor", "vscode", "gemini", "goose", "opencode")

CLIENT = click.argument("client", type=click.Choice(NAMES))
SCOPE = click.option("--scope", type=click.Choice(["user", "project"]), default="user", show_default=True)
YES = click.option("--yes", is_flag=True, help="Do not ask.")
DRY_RUN = click.option("--dry-run", is_flag=True, help="Only show what would be written.")


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
    if _agreed(changes, yes, dry_run):
        _apply(changes, apply_install)
        click.echo(f"Installed. Restart {client} to use it; contextstash uninstall {client} takes it back.")
        if os.environ.get("CONTEXTSTASH_DB"):
            click.echo(f"CONTEXTSTASH_DB is set here: set it where {client} starts too, or it uses another database.")
        if hooks and (remark := HOOKS[client].remark):
            click.echo(remark)


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
    if _agreed(changes, yes, dry_run):
        _apply(changes, apply_uninstall)
        click.echo("Uninstalled. What was recorded stays: contextstash sessions")


def _agreed(changes: list[Change], yes: bool, dry_run: bool) -> bool:
    """Show the differences, and ask if that is wanted."""
    for change in changes:
        if change.needed:
            _show(change)
    if dry_run:
        return False
    if not yes and not sys.stdin.isatty():
        raise BadInputError("Nobody can be asked here. Look at the difference above and repeat with --yes.")
    return yes or click.confirm("Write this?", err=True)


def _show(change: Change) -> None:
    before = (change.before or b"").decode(errors="replace").splitlines(keepends=True)
    after = (change.after or b"").decode(errors="replace").splitlines(keepends=True)
    name = str(change.path)
    for line in difflib.unified_diff(before, after, name, name if change.after is not None else "deleted", n=2):
        colour = {"+": "green", "-": "red", "@": "cyan"}.get(line[0])
        click.secho(line.rstrip("\n"), fg=colour)


def _apply(changes: list[Change], apply: Callable[[Change], None]) -> None:
    for change in changes:
        try:
            apply(change)
        except OSError as error:
            raise BadInputError(f"{change.path} cannot be written: {error.strerror}.") from error
