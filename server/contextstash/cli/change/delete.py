"""`contextstash delete`: delete a session."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from contextstash.cli.command_words import in_commands
from contextstash.cli.completion import session_ids
from contextstash.cli.options import StashOpener, database_options, find_session
from contextstash.cli.output import echo, print_json
from contextstash.outputs.counts import counted
from contextstash_storage.errors import BadInputError

if TYPE_CHECKING:
    from contextstash.results import DeleteResult
    from contextstash.stash import Stash


@click.command()
@click.argument("session", shell_complete=session_ids)
@click.option("--yes", is_flag=True, help="Delete without asking.")
@database_options
def delete(opener: StashOpener, as_json: bool, session: str, yes: bool) -> None:
    """Delete a session, its outputs, its summaries and the sessions of its sub-agents. This cannot be undone."""

    async def find(stash: Stash) -> str:
        return await find_session(stash, session)

    session_id = opener.run(find)
    if not yes and not sys.stdin.isatty():
        raise BadInputError("Not a terminal: pass --yes to delete the session without being asked.")
    if not yes:
        click.confirm(
            f"Delete session {session_id}, all its outputs and the sessions of its sub-agents permanently?",
            abort=True,
            err=True,
        )

    async def work(stash: Stash) -> DeleteResult:
        return await stash.delete_session(session_id)

    result = opener.run(work)
    if as_json:
        print_json(result)
    else:
        along = f", and {counted(result.sub_agents, 'session')} of its sub-agents" if result.sub_agents else ""
        echo(f"Deleted {result.session_id}: {counted(result.messages, 'message')}{along}.")
        if result.note:
            echo(in_commands(result.note), err=True)
