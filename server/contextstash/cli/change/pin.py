"""`contextstash pin`: keep outputs or files in a session's view, whatever their age."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from contextstash.cli.command_words import in_commands
from contextstash.cli.completion import session_ids
from contextstash.cli.options import StashOpener, database_options, find_session
from contextstash.cli.output import echo, print_json

if TYPE_CHECKING:
    from contextstash.service.results import ConfigureResult
    from contextstash.service.stash import Stash


@click.command()
@click.argument("session", shell_complete=session_ids)
@click.argument("pins", nargs=-1, required=True)
@click.option("--remove", is_flag=True, help="Remove these pins instead of adding them.")
@database_options
def pin(opener: StashOpener, as_json: bool, session: str, pins: tuple[str, ...], remove: bool) -> None:
    """Keep outputs in a session's view: by handle (out_…), or the newest output that shows a file, by its path; or a
    rule ("rule: never push")."""

    async def work(stash: Stash) -> ConfigureResult:
        session_id = await find_session(stash, session)
        added, removed = ((), pins) if remove else (pins, ())
        return await stash.configure_session(session_id, pin=added, unpin=removed)

    result = opener.run(work)
    if as_json:
        print_json(result)
        return
    if result.note:
        echo(in_commands(result.note))
    now = ", ".join(map(str, result.settings.get("pin") or ())) or "nothing"
    echo(f"Pinned in session {result.session_id}: {now}.")
