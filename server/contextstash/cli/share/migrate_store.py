"""`contextstash migrate-store`: copy all sessions of one database into another."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from contextstash.cli.options import DatabaseType
from contextstash.outputs.counts import counted
from contextstash_storage.errors import BadInputError

if TYPE_CHECKING:
    from contextstash.transfer.store_migration import Migrated, Progress
    from contextstash_storage.databases import Location

MAX_NAMED = 10
"""Of the sessions that could not be copied, this many are named."""


@click.command("migrate-store", epilog="Example: contextstash migrate-store ~/sessions.db postgresql://me@host/stash")
@click.argument("source", type=DatabaseType())
@click.argument("target", type=DatabaseType())
def migrate_store(source: Location, target: Location) -> int:
    """Copy all sessions of the database SOURCE into TARGET, and compare them by checksum.

    Each is a file or postgresql://…. SOURCE is not changed. Run it again to continue, or to check. Exit code 1 if a
    session of TARGET differs.
    """
    if isinstance(source, Path) and not source.exists():
        raise BadInputError(f"There is no database {source}.")
    if source == target:
        raise BadInputError("SOURCE and TARGET are the same database.")
    done = _migrate(source, target)
    click.echo(f"Copied {counted(done.copied, 'session')}, verified by checksum; {done.already:,} were there already.")
    for name, reason in list(done.failed.items())[:MAX_NAMED]:
        click.echo(f"Not copied: {name}: {reason}", err=True)
    if done.failed:
        click.echo(
            f"{len(done.failed):,} sessions were not copied, and nothing of them was changed in {target}. To copy one"
            " again, delete it there and run this again.",
            err=True,
        )
    return 1 if done.failed else 0


def _migrate(source: Location, target: Location) -> Migrated:
    import asyncio

    from contextstash.configuration.database import open_database
    from contextstash.transfer.store_migration import migrate_store as migrate

    progress_bar: Any = click.progressbar(length=1, label="Copying", file=sys.stderr)

    async def work(bar: Any) -> Migrated:
        def report(progress: Progress) -> None:
            bar.length = max(1, progress.of_messages)
            bar.label = f"Session {progress.sessions:,} of {progress.of_sessions:,}"
            bar.update(progress.messages - bar.pos)

        async with await open_database(source) as opened, await open_database(target) as stored:
            return await migrate(opened, stored, report)

    with progress_bar as bar:
        return asyncio.run(work(bar))
