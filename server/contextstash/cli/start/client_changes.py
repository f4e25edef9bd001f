"""Changes of a client's configuration: the options of the commands that make them, and their confirmation."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from contextstash_storage.errors import BadInputError

if TYPE_CHECKING:
    from contextstash.hosts.install.changes import Change

CLIENT_NAMES = ("claude-code", "claude-desktop", "codex", "cursor", "vscode", "gemini", "goose", "opencode")

CLIENT = click.argument("client", metavar="CLIENT", type=click.Choice(CLIENT_NAMES))
SCOPE = click.option("--scope", type=click.Choice(["user", "project"]), default="user", show_default=True)
YES = click.option("--yes", is_flag=True, help="Write without asking.")
DRY_RUN = click.option("--dry-run", is_flag=True, help="Only show what would be written.")


def confirm_changes(changes: list[Change], yes: bool, dry_run: bool) -> bool:
    """Whether to write the changes, which are shown: --yes says so, or the user is asked."""
    for change in changes:
        if change.needed:
            _show(change)
    if dry_run:
        click.echo("Nothing was written.")
        return False
    if not yes and not sys.stdin.isatty():
        raise BadInputError("Not a terminal: check the difference above and pass --yes to write it.")
    return yes or click.confirm("Write these changes?", err=True)


def _show(change: Change) -> None:
    before = (change.before or b"").decode(errors="replace").splitlines(keepends=True)
    after = (change.after or b"").decode(errors="replace").splitlines(keepends=True)
    name = str(change.path)
    for line in difflib.unified_diff(before, after, name, name if change.after is not None else "deleted", n=2):
        colour = {"+": "green", "-": "red", "@": "cyan"}.get(line[0])
        click.secho(_printable(line.rstrip("\n")), fg=colour)


def _printable(line: str) -> str:
    """A line without control characters: a project's file may contain sequences that a terminal obeys."""
    return "".join(character if character.isprintable() or character == "\t" else "�" for character in line)


def apply_all(changes: list[Change], apply: Callable[[Change], None]) -> None:
    for change in changes:
        try:
            apply(change)
        except OSError as error:
            raise BadInputError(f"{change.path} cannot be written: {error.strerror}.") from error
