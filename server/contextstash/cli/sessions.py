"""`contextstash sessions`: the list of sessions."""

from __future__ import annotations

import click

from contextstash.cli.options import StashOpener, database_options
from contextstash.cli.output import print_json, print_table


@click.command()
@click.option("--limit", type=click.IntRange(1, 1_000), default=20, show_default=True)
@database_options
def sessions(opener: StashOpener, as_json: bool, limit: int) -> None:
    """List the sessions, the one changed last first."""
    result = opener.run(lambda stash: stash.list_sessions(limit=limit))
    if as_json:
        print_json(result)
    elif not result.sessions:
        click.echo("No sessions yet. Record one: contextstash import FILE")
    else:
        rows = [
            (
                line.session_id,
                line.messages,
                line.tokens,
                f"{line.percent:.0f} %",
                line.level,
                line.updated_at[:16].replace("T", " "),
                line.title or line.agent,
            )
            for line in result.sessions
        ]
        print_table(["session", "messages", "tokens", "full", "level", "changed", "title"], rows)
        if result.next_cursor:
            click.echo(f"More: contextstash sessions --limit {limit * 2}")
