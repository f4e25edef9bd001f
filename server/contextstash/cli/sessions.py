"""`contextstash sessions`: the list of sessions."""

from __future__ import annotations

import click

from contextstash.cli.options import Opening, database_options
from contextstash.cli.output import print_json, print_table


@click.command()
@click.option("--limit", type=click.IntRange(1, 1_000), default=20, show_default=True)
@database_options
def sessions(opening: Opening, as_json: bool, limit: int) -> None:
    """The sessions, the one changed last first."""
    answer = opening.run(lambda stash: stash.list_sessions(limit=limit))
    if as_json:
        print_json(answer)
    elif not answer.sessions:
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
            for line in answer.sessions
        ]
        print_table(["session", "messages", "tokens", "full", "level", "changed", "title"], rows)
        if answer.next_cursor:
            click.echo(f"More: contextstash sessions --limit {limit * 2}")
