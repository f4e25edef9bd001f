"""`contextstash restore`: put archived outputs or summarized messages back into the view."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from contextstash.cli.command_words import in_commands
from contextstash.cli.completion import handles as handle_completion
from contextstash.cli.options import StashOpener, database_options, find_session
from contextstash.cli.output import VIEW, change_line, print_json

if TYPE_CHECKING:
    from contextstash.service.results import RestoreResult
    from contextstash.service.stash import Stash


@click.command()
@click.argument("handles", nargs=-1, required=True, shell_complete=handle_completion)
@click.option("--session", help="Their session. [default: the one that has the first of them]")
@database_options
def restore(opener: StashOpener, as_json: bool, handles: tuple[str, ...], session: str | None) -> None:
    """Put archived outputs (out_…) or the messages of a summary (sum_…) back into the view."""

    async def work(stash: Stash) -> RestoreResult:
        session_id = await find_session(stash, session) if session is not None else None
        return await stash.restore_outputs(list(handles), session_id=session_id)

    result = opener.run(work)
    if as_json:
        print_json(result)
        return
    if result.note:
        click.echo(in_commands(result.note))
    for output in result.restored:
        click.echo(f"{output.handle} restored, {output.tokens:,} tokens.")
    for handle in result.not_archived or []:
        click.echo(f"{handle} is already in the view.")
    click.echo(change_line(result.tokens_before, result.tokens_after, of=VIEW))
