"""`contextstash hook`: the command that the lifecycle hooks of a client run."""

from __future__ import annotations

import click

from contextstash.hosts.hooks.clients import HOOKED, run_hook


@click.command()
@click.argument("client", type=click.Choice(list(HOOKED)))
@click.option("--db", help="The database file. [default: CONTEXTSTASH_DB, or in the user's data folder]")
def hook(client: str, db: str | None) -> int:
    """Handle an event of CLIENT's hooks, JSON on standard input. Always exits with 0.

    Archives and replaces large tool outputs, reads transcripts, and writes a hand-off after a compaction.
    """
    return run_hook(client, db)
