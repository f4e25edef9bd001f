"""`contextstash prune`: archive a session's old tool outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from contextstash.cli.command_words import in_commands
from contextstash.cli.completion import session_ids
from contextstash.cli.options import DRY_RUN, StashOpener, database_options, find_session
from contextstash.cli.output import VIEW, change_line, print_json, print_table, working

if TYPE_CHECKING:
    from contextstash.service.results import PruneResult
    from contextstash.service.stash import Stash


@click.command()
@click.argument("session", shell_complete=session_ids)
@click.option("--keep-last", type=click.IntRange(0), metavar="N", help="Do not prune the N newest outputs.")
@click.option(
    "--protect-tokens", type=click.IntRange(0), metavar="N", help="Do not prune the newest N tokens of outputs."
)
@click.option("--minimum-tokens", type=click.IntRange(0), metavar="N", help="Prune only if it saves at least N tokens.")
@DRY_RUN
@database_options
def prune(
    opener: StashOpener,
    as_json: bool,
    session: str,
    keep_last: int | None,
    protect_tokens: int | None,
    minimum_tokens: int | None,
    dry_run: bool,
) -> None:
    """Archive a session's old tool outputs; each can be retrieved by its handle."""

    async def work(stash: Stash) -> PruneResult:
        return await stash.prune_tool_outputs(
            await find_session(stash, session),
            keep_last=keep_last,
            protect_tokens=protect_tokens,
            minimum_tokens=minimum_tokens,
            dry_run=dry_run,
        )

    with working("Pruning"):
        result = opener.run(work)
    if as_json:
        print_json(result)
        return
    if result.note:
        click.echo(in_commands(result.note))
    if result.archived:
        rows = [(output.handle, output.tool, output.tokens, output.digest) for output in result.archived]
        print_table(["handle", "tool", "tokens", "digest"], rows)
    click.echo(f"{in_commands(result.reason)} {change_line(result.tokens_before, result.tokens_after, of=VIEW)}")
