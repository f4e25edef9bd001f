"""Commands that change a session's view, or delete it: prune, compact, restore, pin, delete, retain."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from contextstash import operations
from contextstash.cli.console import echo, in_commands, print_table, tell
from contextstash.cli.options import SESSION, Number, find_session, options_of, stash_command
from contextstash.safety.sanitize import counted
from contextstash_storage.errors import BadInputError

if TYPE_CHECKING:
    from contextstash.results import DeleteResult
    from contextstash.stash import Stash

PREFIXES = ("out_", "sum_")
"""Begin the handles of outputs and of summaries."""


@stash_command("prune")
@options_of(operations.prune_tool_outputs)
async def prune(stash: Stash, session: str | None, **given: Any) -> Any:
    """Archive a session's old tool outputs; each can be retrieved by its handle."""
    result = await stash.prune_tool_outputs(await find_session(stash, session), **given)

    def show() -> None:
        tell(result)
        rows = [(output.handle, output.tool, output.tokens, output.digest) for output in result.archived]
        if rows:
            print_table(["handle", "tool", "tokens", "digest"], rows)
            if not result.dry_run:
                echo(f"To undo: contextstash restore {result.session_id} --last")

    return result, show


SUMMARY = {"type": click.File(errors="replace"), "metavar": "FILE", "help": "Use this summary ('-' for stdin)."}


@stash_command("compact")
@options_of(operations.compact_session, summary=SUMMARY)
async def compact(stash: Stash, session: str | None, summary: TextIO | None, **given: Any) -> Any:
    """Show a session's older messages as a summary. The messages stay in the database."""
    written = summary.read() if summary else None
    result = await stash.compact_session(await find_session(stash, session), summary=written, **given)

    def show() -> None:
        tell(result)
        if result.summary_id and not result.dry_run:
            echo(f"To undo: contextstash restore {result.summary_id}")
        if result.summary:
            echo(f"\n{result.summary}")

    return result, show


@stash_command("restore", epilog="Example: contextstash restore 3f2a --last")
@click.argument("handles", metavar="HANDLES...|SESSION", nargs=-1)
@click.option("--last", is_flag=True, help="Undo the last prune or compaction of the session as a whole.")
async def restore(stash: Stash, handles: tuple[str, ...], last: bool) -> Any:
    """Put archived outputs (out_…) or the messages of a summary (sum_…) back into the view; or, by SESSION --last, all
    that its last prune or compaction took from it."""
    if last and len(handles) < 2:
        result = await stash.restore_last(await find_session(stash, next(iter(handles), None)))
    elif not last and handles and all(each.startswith(PREFIXES) for each in handles):
        result = await stash.restore_outputs(list(handles))
    else:
        raise BadInputError(
            "Pass handles of outputs (out_…) or summaries (sum_…). To undo the last prune or compaction of a session:"
            " contextstash restore SESSION --last"
        )

    def show() -> None:
        for output in result.restored:
            echo(f"{output.handle} restored, {output.tokens:,} tokens.")
        for handle in result.not_archived or []:
            echo(f"{handle} was not archived by contextstash: contextstash show {handle}")
        tell(result)

    return result, show


@stash_command("pin", epilog='Example: contextstash pin "never push to main"')
@click.argument("pins", nargs=-1)
@click.option("--session", help="Their session. [default: that of a handle, else the one with the newest message]")
@click.option("--remove", is_flag=True, help="Remove these pins instead of adding them.")
async def pin(stash: Stash, session: str | None, pins: tuple[str, ...], remove: bool) -> Any:
    """Keep outputs in a session's view: by handle (out_…), or the newest output that shows a file, by its path; or a
    rule, in words and quoted. Without any, list the pins."""
    from contextstash.record.output_archive import OUTPUTS_SUFFIX
    from contextstash.safety.secret_masks import masked

    # Words of which none is a handle or a file are a rule whose quotation marks were forgotten.
    given = pins if any(map(_is_pin, pins)) else [" ".join(pins)] * bool(pins)
    named = [each if _is_pin(each) else f"rule: {each}" for each in given]
    handle = next((each for each in named if each.startswith(PREFIXES[0])), None)
    if session is None and handle is not None:
        session_id = (await stash.find_output(handle))[0].removesuffix(OUTPUTS_SUFFIX)
    else:
        session_id = await find_session(stash, session)
    before = stash.settings(await stash.read_session(session_id)).pin
    if remove and (wrong := [each for each in named if each not in before]):
        pinned = masked("; ".join(before) or "nothing")
        raise BadInputError(f"Not pinned in session {session_id}: {masked(wrong[0])}. Pinned: {pinned}.")
    result = await stash.configure_session(session_id, pin=[] if remove else named, unpin=named if remove else [])
    now = stash.settings(await stash.read_session(session_id)).pin

    def show() -> None:
        if result.note:
            echo(masked(in_commands(result.note)))
            files = [each for each in named if not each.startswith((*PREFIXES, "rule:"))]
            if absent := [each for each in files if not Path(each).exists()]:
                echo(f"There is no file {absent[0]} here. If it is misspelt: contextstash pin --remove {absent[0]}")
        listed = f" {(now or ['nothing'])[0]}." if len(now) < 2 else "".join(f"\n  {each}" for each in now)
        echo(f"Pinned in session {session_id}:{masked(listed)}")

    return result, show


def _is_pin(text: str) -> bool:
    """Whether a text is a handle, a rule as the tools take it, or the path of a file."""
    is_path = " " not in text and any(mark in text for mark in "./\\")
    return text.startswith((*PREFIXES, "rule:")) or is_path or Path(text).exists()


@stash_command("delete")
@SESSION
@click.option("--yes", is_flag=True, help="Delete without asking.")
async def delete(stash: Stash, session: str | None, yes: bool) -> DeleteResult:
    """Delete a session, its outputs, its summaries and the sessions of its sub-agents. This cannot be undone."""
    if session is None:
        raise click.UsageError("Name the session to delete. contextstash sessions lists them.")
    from contextstash.queries.sessions import MIN_ID_CHARACTERS

    session_id = await find_session(stash, session)
    if len(session) < min(MIN_ID_CHARACTERS, len(session_id)):
        raise BadInputError(f"To delete it, pass at least {MIN_ID_CHARACTERS} characters of its id: {session_id}")
    if not yes and not sys.stdin.isatty():
        raise BadInputError("Not a terminal: pass --yes to delete the session without being asked.")
    if not yes:
        question = f"Delete session {session_id}, all its outputs and the sessions of its sub-agents permanently?"
        click.confirm(question, abort=True, err=True)
    return await stash.delete_session(session_id)


@stash_command("retain", epilog="Example: contextstash retain --days 90            (says what would go)")
@click.option(
    "--days",
    type=Number(1, 36_500),
    metavar="N",
    help="Keep what was recorded or imported in these days. [default: keep_days]",
)
@click.option("--yes", is_flag=True, help="Delete; without it, only say what would be deleted.")
async def retain(stash: Stash, days: int | None, yes: bool) -> Any:
    """Delete old sessions. Nothing is deleted without --yes, and never a session with a pin.

    The limit is --days, else the setting keep_days, which is off by default. A scheduler can run it once a day.
    """
    result = await stash.retain(datetime.now(UTC), days=days, dry_run=not yes)

    def show() -> None:
        for line in result.sessions:
            messages = counted(line.messages, "message")
            echo(f"{line.last_recorded[:10]}  {line.session_id}  {messages}  {line.title or '-'}")
        done = "Deleted" if yes else "Would delete"
        echo(f"{done} {counted(len(result.sessions), 'session')}; {counted(result.pinned, 'session')} kept for a pin.")
        if result.sessions and not yes:
            echo("Nothing was changed. To do it: the same command with --yes")
        if result.note:
            echo(result.note, err=True)

    return result, show
