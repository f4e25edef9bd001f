"""Commands that change a session's view, or delete it: prune, compact, restore, pin, delete, retain."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from contextstash import operations
from contextstash.cli.console import echo, in_commands, print_json, print_table, tell, working
from contextstash.cli.options import (
    SESSION,
    StashOpener,
    database_options,
    find_session,
    options_of,
)
from contextstash.outputs.counts import counted
from contextstash.session_names import short_id
from contextstash_storage.errors import BadInputError, NotFoundError

if TYPE_CHECKING:
    from contextstash.results import CompactResult, ConfigureResult, PruneResult, RestoreResult, RetainResult
    from contextstash.stash import Stash

PREFIXES = ("out_", "sum_")
"""Begin the handles of outputs and of summaries."""

RULE = "rule:"
"""Begins a pin that is a rule."""


@click.command()
@SESSION
@options_of(operations.prune_tool_outputs, "keep_last", "protect_tokens", "minimum_tokens", "dry_run")
@database_options
def prune(opener: StashOpener, as_json: bool, session: str | None, **given: Any) -> None:
    """Archive a session's old tool outputs; each can be retrieved by its handle."""

    async def work(stash: Stash) -> tuple[PruneResult, str]:
        session_id = await find_session(stash, session)
        return await stash.prune_tool_outputs(session_id, **given), await short_id(stash, session_id)

    with working("Pruning"):
        result, name = opener.run(work)
    if as_json:
        print_json(result)
        return
    tell(result)
    if result.archived:
        rows = [(output.handle, output.tool, output.tokens, output.digest) for output in result.archived]
        print_table(["handle", "tool", "tokens", "digest"], rows)
        if not given["dry_run"]:
            echo(f"To undo: contextstash restore {name} --last")


@click.command()
@SESSION
@click.option("--summary", "summary_file", type=click.File(), metavar="FILE", help="Use this summary ('-' for stdin).")
@options_of(operations.compact_session, "instructions", "strategy", "dry_run")
@database_options
def compact(
    opener: StashOpener, as_json: bool, session: str | None, summary_file: IO[str] | None, **given: Any
) -> None:
    """Show a session's older messages as a summary. The messages stay in the database."""
    summary = summary_file.read() if summary_file else None

    async def work(stash: Stash) -> CompactResult:
        return await stash.compact_session(await find_session(stash, session), summary=summary, **given)

    with working("Compacting"):
        result = opener.run(work)
    if as_json:
        print_json(result)
        return
    if result.summary:
        echo(f"{result.summary}\n")
    tell(result)
    if result.summary_id and not given["dry_run"]:
        echo(f"To undo: contextstash restore {result.summary_id} --session {result.session_id}")


@click.command()
@click.argument("handles", metavar="HANDLES|SESSION", nargs=-1)
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
    for output in result.restored:
        echo(f"{output.handle} restored, {output.tokens:,} tokens.")
    for handle in result.not_archived or []:
        echo(f"{handle} is already in the view.")
    tell(result)


@click.command()
@click.argument("pins", nargs=-1, required=True)
@click.option("--session", help="Their session. [default: the one with the newest message]")
@click.option("--remove", is_flag=True, help="Remove these pins instead of adding them.")
@database_options
def pin(opener: StashOpener, as_json: bool, session: str | None, pins: tuple[str, ...], remove: bool) -> None:
    """Keep outputs in a session's view: by handle (out_…), or the newest output that shows a file, by its path; or a
    rule, in words ("never push to main")."""
    from contextstash.safety.secret_masks import masked

    named = _pins(pins)

    async def work(stash: Stash) -> ConfigureResult:
        session_id = await find_session(stash, session)
        added, removed = ([], named) if remove else (named, [])
        return await stash.configure_session(session_id, pin=added, unpin=removed)

    result = opener.run(work)
    if as_json:
        print_json(result)
        return
    if result.note:
        echo(masked(in_commands(result.note)))
    now = ", ".join(map(str, result.settings.get("pin") or ())) or "nothing"
    echo(f"Pinned in session {result.session_id}: {masked(now)}.")


def _pins(given: tuple[str, ...]) -> list[str]:
    """The pins as the tools take them: words that are neither a handle nor a file are a rule, quoted or not."""
    names = [each for each in given if each.startswith((*PREFIXES, RULE)) or Path(each).exists() or _is_path(each)]
    if not names:
        return [f"{RULE} {' '.join(given)}"]
    return [each if each in names else f"{RULE} {each}" for each in given]


def _is_path(text: str) -> bool:
    return " " not in text and any(mark in text for mark in "./\\")


@click.command()
@click.argument("session")
@click.option("--yes", is_flag=True, help="Delete without asking.")
@database_options
def delete(opener: StashOpener, as_json: bool, session: str, yes: bool) -> None:
    """Delete a session, its outputs, its summaries and the sessions of its sub-agents. This cannot be undone."""
    session_id = opener.run(lambda stash: find_session(stash, session))
    if not yes and not sys.stdin.isatty():
        raise BadInputError("Not a terminal: pass --yes to delete the session without being asked.")
    if not yes:
        click.confirm(
            f"Delete session {session_id}, all its outputs and the sessions of its sub-agents permanently?",
            abort=True,
            err=True,
        )
    result = opener.run(lambda stash: stash.delete_session(session_id))
    if as_json:
        print_json(result)
    else:
        tell(result)


@click.command(epilog="Example: contextstash retain --days 90            (says what would go)")
@click.option("--days", type=click.IntRange(1), help="Keep what was recorded in these days. [default: keep_days]")
@click.option("--project", metavar="FOLDER", help="Only sessions of clients that ran in this folder.")
@click.option("--yes", is_flag=True, help="Delete; without it, only say what would be deleted.")
@database_options
def retain(opener: StashOpener, as_json: bool, days: int | None, project: str | None, yes: bool) -> None:
    """Delete old sessions. Nothing is deleted without --yes, and never a session with a pin.

    The limit is --days, else the setting keep_days, which is off by default. If it is set, the server and the proxy do
    the same once a day, three days after they announced it.
    """

    async def work(stash: Stash) -> RetainResult:
        return await stash.retain(datetime.now(UTC), days=days, project=project, dry_run=not yes)

    result = opener.run(work)
    if as_json:
        print_json(result)
        return
    for line in result.sessions:
        echo(f"{line.last_recorded[:10]}  {line.session_id}  {counted(line.messages, 'message')}  {line.title or '-'}")
    done = "Deleted" if yes else "Would delete"
    echo(f"{done} {counted(len(result.sessions), 'session')}; {counted(result.pinned, 'session')} kept for a pin.")
    if result.sessions and not yes:
        echo("Nothing was changed. To do it: the same command with --yes")
    if result.note:
        echo(result.note, err=True)
