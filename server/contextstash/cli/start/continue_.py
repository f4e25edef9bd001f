"""`contextstash continue`: go on with a session in another client."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from contextstash.cli.completion import session_ids
from contextstash.cli.options import StashOpener, find_session, opener_options, program_on_path
from contextstash.cli.output import for_reader
from contextstash.clients.client import client as client_of
from contextstash.clients.launch import CONTINUED, MAX_ARGUMENT_BYTES, continued, first_message
from contextstash_storage.errors import BadInputError, ContextstashError

if TYPE_CHECKING:
    from contextstash.stash import Stash


@dataclass(frozen=True)
class Start:
    """The first message, and the folder of the session if its transcript still names it."""

    message: str
    session_id: str
    folder: str | None


@click.command("continue")
@click.argument("client", type=click.Choice(CONTINUED))
@click.argument("session", required=False, shell_complete=session_ids)
@click.option(
    "--folder", type=click.Path(path_type=Path, file_okay=False, exists=True), help="Start it in this folder."
)
@click.option(
    "--tokens",
    type=click.IntRange(500, 20_000),
    help="Of the hand-off. [default: handoff_tokens, else 5,000 in a window of 200,000; fewer for a short session]",
)
@click.option("--yes", is_flag=True, help="Start in the current folder without asking if the session's is gone.")
@click.option("--print", "only_print", is_flag=True, help="Only print the first message.")
@opener_options
def continue_(
    opener: StashOpener,
    client: str,
    session: str | None,
    folder: Path | None,
    tokens: int | None,
    yes: bool,
    only_print: bool,
) -> int:
    """Start CLIENT in the session's folder, with the hand-off of SESSION as its first message.

    [default: the session with the newest message] Everything else of the session comes back by search and by handle.
    """
    program = "" if only_print else program_on_path(client)
    start = opener.run(lambda stash: _start(stash, session, tokens))
    if only_print:
        click.echo(start.message)
        return 0
    place = folder or _folder_of(start, yes)
    _note_if_not_installed(client)
    command = continued(client_of(client), program, start.message)
    from contextstash.proxy.supervisor import run_client

    os.chdir(place)
    return run_client(command, os.environ)


async def _start(stash: Stash, named: str | None, tokens: int | None) -> Start:
    session_id = await find_session(stash, named)
    session = await stash.read_session(session_id)
    if session.source is not None:
        await _read_on(stash, session.source)
    [folder] = await stash.projects_of([session])
    text = await stash.hand_off_text(session_id, tokens)
    if text is None:
        raise BadInputError(f"Session {session_id} has nothing to hand off yet.")
    message = first_message(text, session_id)
    if len(message.encode()) > MAX_ARGUMENT_BYTES:
        raise BadInputError("The hand-off is too long for a first message: pass a smaller --tokens.")
    return Start(message, session_id, folder)


async def _read_on(stash: Stash, source: str) -> None:
    """Record what the client has written since, if its transcript is still there."""
    from contextstash.clients.follow import ingest

    try:
        await ingest(stash, Path(source), reduce=False, wanted=True)
    except FileNotFoundError:
        click.echo("The client has deleted its transcript; the session is kept here.", err=True)
    except (OSError, ContextstashError) as error:
        click.echo(f"The newest messages may be missing: {source} cannot be read: {error}", err=True)


def _folder_of(start: Start, yes: bool) -> Path:
    """The session's folder, else this one: if the session's is gone, only with the user's consent, as a client may
    change files where it starts. Raises BadInputError if the user does not agree."""
    if start.folder is not None and Path(start.folder).is_dir():
        return Path(start.folder)
    what = f"The folder of session {start.session_id}"
    if start.folder is None or yes:
        click.echo(f"{what} is not {'there any more' if start.folder else 'known'}: starting here.", err=True)
        click.echo("--folder names another.", err=True)
        return Path.cwd()
    gone = f"{what} is not there any more: {start.folder}."
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise BadInputError(f"{gone} Name one with --folder, or pass --yes to start in {Path.cwd()}.")
    click.confirm(f"{for_reader(gone)} Start in {Path.cwd()}?", err=True, abort=True)
    return Path.cwd()


def _note_if_not_installed(client: str) -> None:
    """Say how the client can read the old session, if it cannot yet."""
    from contextstash.clients.client import Machine
    from contextstash.clients.launch import is_configured

    found = client_of(client)
    if not is_configured(found, (), Machine.this()):
        click.echo(
            f"{client} cannot search the old session yet. To give it the tools: contextstash install {found.name}",
            err=True,
        )
