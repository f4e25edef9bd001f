"""`contextstash export`: write a session to a file."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from contextstash.cli.completion import session_ids
from contextstash.cli.options import DATABASE, PRESET, SET, StashOpener, find_session, settings_from
from contextstash_storage.errors import BadInputError

if TYPE_CHECKING:
    from contextstash.service.stash import Stash
    from contextstash.sharing.export import Form

FORMS = ("session", "messages", "view", "markdown", "html")


@click.command(epilog="Example: contextstash export 3f2a -o session.html")
@click.argument("session", shell_complete=session_ids)
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="The file. [default: standard output]"
)
@click.option("--format", "form", type=click.Choice(FORMS), help="[default: by the suffix of the file, else session]")
@click.option("--yes", is_flag=True, help="Overwrite the file without asking.")
@DATABASE
@PRESET
@SET
def export(
    session: str,
    output: Path | None,
    form: Form | None,
    yes: bool,
    db: Path | None,
    preset: str | None,
    given: tuple[str, ...],
) -> None:
    """Write a session to a file.

    session: everything, as JSON lines; contextstash import reads it without loss. messages: the history in its
    provider's own JSON, one message per line. view: the messages for the next request. markdown and html: for people.
    """
    from contextstash.sharing.export import form_of

    chosen = form or form_of(output)
    opener = StashOpener(db, settings_from(preset, given))
    if output is None:
        opener.run(lambda stash: _write(stash, session, chosen, sys.stdout))
        return
    if output.exists() and not yes:
        _confirm(output)
    try:
        handle, name = tempfile.mkstemp(dir=output.parent, prefix=f".{output.name}.")
    except OSError as error:
        raise BadInputError(f"{output} cannot be written: {error.strerror}.") from error
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
            opener.run(lambda stash: _write(stash, session, chosen, file))
        Path(name).replace(output)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    click.echo(f"Written to {output}", err=True)


def _confirm(output: Path) -> None:
    """Ask whether to overwrite a file. Raises BadInputError if the user says no, or cannot be asked."""
    if not sys.stdin.isatty():
        raise BadInputError(f"{output} exists. Pass --yes to overwrite it.")
    if not click.confirm(f"{output} exists. Overwrite it?", err=True):
        raise BadInputError(f"{output} is unchanged.")


async def _write(stash: Stash, session: str, form: Form, file: IO[str]) -> None:
    from contextstash.sharing.export import exported_text

    async for piece in exported_text(stash, await find_session(stash, session), form):
        file.write(piece)
