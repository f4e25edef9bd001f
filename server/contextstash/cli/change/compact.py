"""`contextstash compact`: show a session's older messages as a summary."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any

import click

from contextstash.cli.command_words import in_commands
from contextstash.cli.completion import session_ids
from contextstash.cli.options import DRY_RUN, StashOpener, database_options, find_session
from contextstash.cli.output import VIEW, change_line, echo, print_json, working

if TYPE_CHECKING:
    from contextstash.results import CompactResult
    from contextstash.stash import Stash


@click.command()
@click.argument("session", shell_complete=session_ids)
@click.option("--summary", "summary_file", type=click.File(), metavar="FILE", help="Use this summary ('-' for stdin).")
@click.option("--instructions", help="What the summary should focus on.")
@click.option("--strategy", type=click.Choice(["auto", "anthropic", "extractive"]), default="auto", show_default=True)
@DRY_RUN
@database_options
def compact(opener: StashOpener, as_json: bool, session: str, summary_file: IO[str] | None, **options: Any) -> None:
    """Show a session's older messages as a summary. The messages stay in the database."""
    summary = summary_file.read() if summary_file else None

    async def work(stash: Stash) -> CompactResult:
        return await stash.compact_session(await find_session(stash, session), summary=summary, **options)

    with working("Compacting"):
        result = opener.run(work)
    if as_json:
        print_json(result)
        return
    if result.note:
        echo(in_commands(result.note))
    if result.summary:
        echo(f"{result.summary}\n")
    echo(f"{in_commands(result.reason)} {change_line(result.tokens_before, result.tokens_after, of=VIEW)}")
    if result.summary_id:
        echo(f"To undo: contextstash restore {result.summary_id} --session {result.session_id}")
