"""`contextstash restore`: put archived outputs or summarized messages back into the view."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from contextstash.cli.command_words import in_commands
from contextstash.cli.completion import handles_and_sessions
from contextstash.cli.options import StashOpener, database_options, find_session
from contextstash.cli.output import VIEW, change_line, echo, print_json
from contextstash_storage.errors import NotFoundError

if TYPE_CHECKING:
    from contextstash.results import RestoreResult
    from contextstash.stash import Stash


PREFIXES = ("out_", "sum_")


@click.command()
@click.argument("handles", metavar="HANDLES|SESSION", nargs=-1, shell_complete=handles_and_sessions)
@click.option("--last", is_flag=True, help="Undo the last prune or compaction of SESSION as a whole.")
@click.option("--session", help="Their session. [default: the one that has the first of them]")
@database_options
def restore(opener: StashOpener, as_json: bool, handles: tuple[str, ...], last: bool, session: str | None) -> None:
    """Put archived outputs (out_…) or the messages of a summary (sum_…) back into the view.

    Example: contextstash restore 3f2a --last
    """
    if last and len(handles) > (session is None):
        raise click.UsageError("With --last, name only a session: all that its last change archived is restored.")
    if not last and not handles:
        raise click.UsageError("Pass handles, or a session and --last.")
    if not last and (unknown := next((each for each in handles if not each.startswith(PREFIXES)), None)):
        raise NotFoundError(
            f"There is no output or summary '{unknown}'. To undo the last prune or compaction of a session:"
            " contextstash restore SESSION --last"
        )

    async def work(stash: Stash) -> RestoreResult:
        if last:
            return await stash.restore_last(await find_session(stash, session or next(iter(handles), None)))
        session_id = await find_session(stash, session) if session is not None else None
        return await stash.restore_outputs(list(handles), session_id=session_id)

    result = opener.run(work)
    if as_json:
        print_json(result)
        return
    if result.note:
        echo(in_commands(result.note))
    for output in result.restored:
        echo(f"{output.handle} restored, {output.tokens:,} tokens.")
    for handle in result.not_archived or []:
        echo(f"{handle} is already in the view.")
    echo(change_line(result.tokens_before, result.tokens_after, of=VIEW))
