"""`contextstash retain`: delete sessions that are older than the user wants to keep."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from contextstash.cli.options import StashOpener, database_options
from contextstash.cli.output import echo, print_json
from contextstash.outputs.counts import counted

if TYPE_CHECKING:
    from contextstash.results import RetainResult
    from contextstash.stash import Stash


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
