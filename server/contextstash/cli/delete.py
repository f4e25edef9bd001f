"""`contextstash delete`: delete a session."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from contextstash.cli.completion import session_ids
from contextstash.cli.options import Opening, database_options, find_session
from contextstash.cli.output import print_json
from contextstash_storage.errors import BadInputError

if TYPE_CHECKING:
    from contextstash.service.results import DeleteResult
    from contextstash.service.stash import Stash


@click.command()
@click.argument("session", shell_complete=session_ids)
@click.option("--yes", is_flag=True, help="Do not ask.")
@database_options
def delete(opening: Opening, as_json: bool, session: str, yes: bool) -> None:
    """Delete a session with all that belongs to it. This cannot be undone."""

    async def find(stash: Stash) -> str:
        return await find_session(stash, session)

    session_id = opening.run(find)
    if not yes and not sys.stdin.isatty():
        raise BadInputError("Nobody can be asked here. Repeat with --yes to delete it.")
    if not yes:
        click.confirm(f"Delete session {session_id} and all its outputs for good?", abort=True, err=True)

    async def work(stash: Stash) -> DeleteResult:
        return await stash.delete_session(session_id)

    answer = opening.run(work)
    if as_json:
        print_json(answer)
    else:
        click.echo(f"Deleted {answer.session_id}: {answer.messages:,} messages.")
        if answer.note:
            click.echo(answer.note, err=True)
