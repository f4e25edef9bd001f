"""Changes of a client's configuration: the options of the commands that make them, and their confirmation."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from contextstash.outputs.counts import counted
from contextstash_storage.errors import BadInputError

if TYPE_CHECKING:
    from contextstash.clients.install import Change

CLIENT_NAMES = ("claude-code", "claude-desktop", "codex", "cursor", "vscode", "gemini", "goose", "opencode", "pi")


class ClientName(click.ParamType[str]):
    """The name of a client, also a shorter one if it is clear: claude, vs-code."""

    name = "client"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value in CLIENT_NAMES:
            return value
        close = [name for name in CLIENT_NAMES if name.startswith(value)]
        close = close or difflib.get_close_matches(value.lower(), CLIENT_NAMES, n=2, cutoff=0.6)
        meant = f"Did you mean {' or '.join(close)}?" if close else f"CLIENT is {', '.join(CLIENT_NAMES)}."
        raise click.UsageError(f"There is no client '{value}'. {meant}", ctx)

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None) -> str:
        return f"Choose from: {', '.join(CLIENT_NAMES)}"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(name) for name in CLIENT_NAMES if name.startswith(incomplete)]


CLIENT = click.argument("client", metavar="CLIENT", type=ClientName())
CLIENT_OR_ALL = click.argument("client", metavar="[CLIENT]", type=ClientName(), required=False)
DIFF = click.option("--diff", is_flag=True, help="Show each line that would change.")
SCOPE = click.option("--scope", type=click.Choice(["user", "project"]), default="user", show_default=True)
YES = click.option("--yes", is_flag=True, help="Write without asking.")
DRY_RUN = click.option("--dry-run", is_flag=True, help="Only show what would be written.")


def confirm_changes(changes: list[Change], yes: bool, dry_run: bool, diff: bool) -> bool:
    """Whether to write the changes, which are shown: --yes says so, or the user is asked."""
    for change in changes:
        if change.needed:
            _show(change) if diff else _sum_up(change, yes=yes and not dry_run)
    if not diff:
        click.echo("--diff shows each line.")
    if dry_run:
        click.echo("Nothing was written.")
        return False
    if not yes and not sys.stdin.isatty():
        raise BadInputError("Nothing was written, as there is no terminal to ask in: pass --yes to write it.")
    return yes or click.confirm("Write these changes?", err=True)


def _sum_up(change: Change, *, yes: bool) -> None:
    """The changes of a file, one line for each. Without `yes` they are not decided yet."""
    lines = list(_difference(change))[2:]
    added, removed = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    fate = "created" if change.before is None else "deleted" if change.after is None else "changed"
    counts = " and ".join(
        f"{counted(number, 'line')} {verb}" for number, verb in ((added, "added"), (removed, "removed")) if number
    )
    click.echo(f"{change.path} {'is' if yes else 'would be'} {fate}: {counts}")
    for each in change.does:
        click.echo(f"  {_printable(each)}")


def _difference(change: Change) -> Iterator[str]:
    before = (change.before or b"").decode(errors="replace").splitlines(keepends=True)
    after = (change.after or b"").decode(errors="replace").splitlines(keepends=True)
    name = str(change.path)
    return difflib.unified_diff(before, after, name, name if change.after is not None else "deleted", n=2)


def _show(change: Change) -> None:
    for line in _difference(change):
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
