"""`contextstash export`: write a session to a file."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from contextstash.base.atomic_file import replacement
from contextstash.cli.completion import session_ids
from contextstash.cli.options import DATABASE, PRESET, SET, StashOpener, find_session, settings_from
from contextstash_storage.errors import BadInputError

if TYPE_CHECKING:
    from contextstash.sharing.export import Form
    from contextstash.stash import Stash
    from contextstash_storage.databases import Location

FORMS = ("session", "messages", "view", "markdown", "html")


@click.command(epilog="Example: contextstash export 3f2a -o session.html")
@click.argument("session", shell_complete=session_ids)
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="The file. [default: standard output]"
)
@click.option("--format", "form", type=click.Choice(FORMS), help="[default: by the suffix of the file, else session]")
@click.option("--with-secrets", is_flag=True, help="Write keys, tokens and passwords as they were recorded.")
@click.option("--yes", is_flag=True, help="Overwrite the file without asking.")
@DATABASE
@PRESET
@SET
def export(
    session: str,
    output: Path | None,
    form: Form | None,
    with_secrets: bool,
    yes: bool,
    db: Location | None,
    preset: str | None,
    given: tuple[str, ...],
) -> None:
    """Write a session to a file.

    session: everything, as JSON lines; contextstash import reads it without loss, if it was written with
    --with-secrets: otherwise masks stand in the place of keys and passwords. messages: the history in its
    provider's own JSON, one message per line, with what only replies have (model, usage); in a file that ends with
    .json one list. view: the messages for the next request, likewise. markdown and html: for people.
    """
    from contextstash.sharing.export import form_of

    chosen = form or form_of(output)
    as_list = output is not None and output.suffix == ".json" and chosen in ("messages", "view")
    if output is not None and output.suffix == ".json" and chosen == "session":
        raise BadInputError(
            f"A whole session is JSON lines: name the file {output.with_suffix('.jsonl')}. For one list of messages:"
            " --format messages or view."
        )
    opener = StashOpener(db, settings_from(preset, (*given, "secrets=off") if with_secrets else given))
    if output is None:
        opener.run(lambda stash: _write(stash, session, chosen, sys.stdout))
        return
    if output.exists() and not yes:
        _confirm(output)
    with _written(output) as file:
        opener.run(lambda stash: _write(stash, session, chosen, file, as_list=as_list))
    click.echo(f"Written to {output}", err=True)


@contextmanager
def _written(output: Path) -> Iterator[IO[str]]:
    """The text that becomes the file once it is whole. Raises BadInputError if there can be no such file."""
    with ExitStack() as stack:
        try:
            file = stack.enter_context(replacement(output))
        except OSError as error:
            raise BadInputError(f"{output} cannot be written: {error.strerror}.") from error
        yield stack.enter_context(io.TextIOWrapper(file, encoding="utf-8", errors="replace"))


def _confirm(output: Path) -> None:
    """Ask whether to overwrite a file. Raises BadInputError if the user says no, or cannot be asked."""
    if not sys.stdin.isatty():
        raise BadInputError(f"{output} exists. Pass --yes to overwrite it.")
    if not click.confirm(f"{output} exists. Overwrite it?", err=True):
        raise BadInputError(f"{output} is unchanged.")


async def _write(stash: Stash, session: str, form: Form, file: IO[str], *, as_list: bool = False) -> None:
    """Write the export; `as_list`: the lines, each a JSON document, as one JSON list."""
    from contextstash.sharing.export import exported_text

    before = "[\n"
    async for piece in exported_text(stash, await find_session(stash, session), form):
        if not as_list:
            file.write(piece)
            continue
        for line in filter(None, piece.split("\n")):
            file.write(f"{before}{line}")
            before = ",\n"
    if as_list:
        file.write("[]\n" if before == "[\n" else "\n]\n")
