"""`contextstash restore`: put archived outputs or summarized messages back into the view."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from contextstash.cli.completion import handles as handle_completion
from contextstash.cli.options import Opening, database_options, find_session
from contextstash.cli.output import change_line, print_json

if TYPE_CHECKING:
    from contextstash.service.results import RestoreResult
    from contextstash.service.stash import Stash


@click.command()
@click.argument("handles", nargs=-1, required=True, shell_complete=handle_completion)
@click.option("--session", help="The session; needed for a summary (sum_…) of any but the last one changed.")
@database_options
def restore(opening: Opening, as_json: bool, handles: tuple[str, ...], session: str | None) -> None:
    """Put archived outputs (out_…) or what a summary covers (sum_…) back into the view."""

    async def work(stash: Stash) -> RestoreResult:
        needs_session = session is not None or any(not handle.startswith("out_") for handle in handles)
        session_id = await find_session(stash, session) if needs_session else None
        return await stash.restore_outputs(list(handles), session_id=session_id)

    answer = opening.run(work)
    if as_json:
        print_json(answer)
        return
    for output in answer.restored:
        click.echo(f"{output.handle} is back, {output.tokens:,} tokens.")
    for handle in answer.not_archived or []:
        click.echo(f"{handle} was in the view already.")
    click.echo(change_line(answer.tokens_before, answer.tokens_after))
