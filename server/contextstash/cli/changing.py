"""Commands that change a session: `prune`, `compact`, `restore`, `delete`."""

from __future__ import annotations

import sys
from typing import IO, TYPE_CHECKING

import click

from contextstash.cli.completion import handles as handle_completion
from contextstash.cli.completion import session_ids
from contextstash.cli.options import Opening, database_options, find_session
from contextstash.cli.output import print_json, print_table, working
from contextstash.context.text.before_and_after import before_and_after
from contextstash_storage.errors import BadInputError

if TYPE_CHECKING:
    from contextstash.service.results import CompactResult, DeleteResult, PruneResult, RestoreResult
    from contextstash.service.stash import Stash

DRY_RUN = click.option("--dry-run", is_flag=True, help="Only say what would be done.")


@click.command()
@click.argument("session", shell_complete=session_ids)
@click.option("--keep-last", type=click.IntRange(0), metavar="N", help="Outputs never touched, newest first.")
@click.option("--protect-tokens", type=click.IntRange(0), metavar="N", help="Output tokens never touched.")
@click.option("--minimum-tokens", type=click.IntRange(0), metavar="N", help="Least saving worth it.")
@DRY_RUN
@database_options
def prune(
    opening: Opening,
    as_json: bool,
    session: str,
    keep_last: int | None,
    protect_tokens: int | None,
    minimum_tokens: int | None,
    dry_run: bool,
) -> None:
    """Archive a session's old tool outputs; each stays retrievable by its handle."""

    async def work(stash: Stash) -> PruneResult:
        return await stash.prune_tool_outputs(
            await find_session(stash, session),
            keep_last=keep_last,
            protect_tokens=protect_tokens,
            minimum_tokens=minimum_tokens,
            dry_run=dry_run,
        )

    with working("Pruning"):
        answer = opening.run(work)
    if as_json:
        print_json(answer)
        return
    if answer.archived:
        rows = [(output.handle, output.tool, output.tokens, output.digest) for output in answer.archived]
        print_table(["handle", "tool", "tokens", "digest"], rows)
    click.echo(f"{answer.reason} {change_line(answer.tokens_before, answer.tokens_after)}")


@click.command()
@click.argument("session", shell_complete=session_ids)
@click.option("--summary", "summary_file", type=click.File(), metavar="FILE", help="Use this summary ('-' for stdin).")
@click.option("--instructions", help="What the summary should dwell on.")
@click.option("--strategy", type=click.Choice(["auto", "anthropic", "extractive"]), default="auto", show_default=True)
@DRY_RUN
@database_options
def compact(
    opening: Opening,
    as_json: bool,
    session: str,
    summary_file: IO[str] | None,
    instructions: str | None,
    strategy: str,
    dry_run: bool,
) -> None:
    """Show a session's older messages as a summary; they stay recorded."""
    summary = summary_file.read() if summary_file else None

    async def work(stash: Stash) -> CompactResult:
        return await stash.compact_session(
            await find_session(stash, session),
            summary=summary,
            instructions=instructions,
            strategy=strategy,
            dry_run=dry_run,
        )

    with working("Compacting"):
        answer = opening.run(work)
    if as_json:
        print_json(answer)
        return
    if answer.summary:
        click.echo(f"{answer.summary}\n")
    click.echo(f"{answer.reason} {change_line(answer.tokens_before, answer.tokens_after)}")
    if answer.summary_id:
        click.echo(f"To undo: contextstash restore {answer.summary_id} --session {answer.session_id}")


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


def change_line(before: int, after: int) -> str:
    """Tokens before and after, and the difference."""
    if before == after:
        return f"{before:,} tokens, unchanged."
    share = f", {100 * (after - before) / before:+.0f} %" if before else ""
    return f"{before_and_after(before, after)} tokens{share}."
