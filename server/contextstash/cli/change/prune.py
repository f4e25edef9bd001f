"""`contextstash prune`: archive a session's old tool outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from contextstash.cli.command_words import in_commands
from contextstash.cli.completion import session_ids
from contextstash.cli.options import DRY_RUN, StashOpener, database_options, find_session
from contextstash.cli.output import VIEW, change_line, echo, print_json, print_table, working
from contextstash.outputs.counts import counted
from contextstash.session_names import short_id

if TYPE_CHECKING:
    from contextstash.results import PruneResult
    from contextstash.stash import Stash


KEPT = (5, 2, 0)
"""How many of the newest outputs a suggested prune keeps. The newest ones are still in use."""


@dataclass(frozen=True)
class Suggestion:
    """A prune that would archive so many outputs, and free so many tokens."""

    keep_last: int
    outputs: int
    tokens: int


@click.command()
@click.argument("session", shell_complete=session_ids)
@click.option("--keep-last", type=click.IntRange(0), metavar="N", help="Do not prune the N newest outputs.")
@click.option(
    "--protect-tokens", type=click.IntRange(0), metavar="N", help="Do not prune the newest N tokens of outputs."
)
@click.option("--minimum-tokens", type=click.IntRange(0), metavar="N", help="Prune only if it saves at least N tokens.")
@DRY_RUN
@database_options
def prune(opener: StashOpener, as_json: bool, session: str, dry_run: bool, **limits: int | None) -> None:
    """Archive a session's old tool outputs; each can be retrieved by its handle."""

    async def work(stash: Stash) -> tuple[PruneResult, Suggestion | None, str]:
        session_id = await find_session(stash, session)
        result = await stash.prune_tool_outputs(session_id, dry_run=dry_run, **limits)
        is_plain = limits["keep_last"] is None and limits["protect_tokens"] is None and not as_json
        other = await _suggestion(stash, session_id) if is_plain and not result.archived else None
        return result, other, await short_id(stash, session_id)

    with working("Pruning"):
        result, other, name = opener.run(work)
    if as_json:
        print_json(result)
        return
    if result.note:
        echo(in_commands(result.note))
    if result.archived:
        rows = [(output.handle, output.tool, output.tokens, output.digest) for output in result.archived]
        print_table(["handle", "tool", "tokens", "digest"], rows)
    if other is not None:
        # The advice after the reason names no numbers; the suggestion does.
        reason = in_commands(result.reason.partition(" Pass ")[0])
        echo(
            f"{reason} contextstash prune {name} --keep-last {other.keep_last} would archive"
            f" {counted(other.outputs, 'output')} and free {other.tokens:,} of {result.tokens_before:,} tokens{VIEW}."
        )
        return
    echo(f"{in_commands(result.reason)} {change_line(result.tokens_before, result.tokens_after, of=VIEW)}")
    if result.archived and not dry_run:
        echo(f"To undo: contextstash restore {name} --last")


async def _suggestion(stash: Stash, session_id: str) -> Suggestion | None:
    """A prune that archives something, if the settings protect everything; the one that keeps most of those tried."""
    for keep_last in KEPT:
        tried = await stash.prune_tool_outputs(session_id, keep_last=keep_last, dry_run=True)
        if tried.archived:
            outputs = len(tried.archived) + (tried.more or 0)
            return Suggestion(keep_last, outputs, tried.tokens_saved)
    return None
