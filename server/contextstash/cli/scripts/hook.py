"""`contextstash hook`: the command that the lifecycle hooks of a client run."""

from __future__ import annotations

import click

from contextstash.clients.hooks import HOOKED, part_of, run_hook


@click.command()
@click.argument("client", type=click.Choice(list(HOOKED)))
@click.option("--db", help="The database file. [default: CONTEXTSTASH_DB, or in the user's data folder]")
@click.option(
    "--part",
    default="1/1",
    help="The part of a hand-off that this hook gives, such as 2/3: clients bound what one hook may add.",
)
def hook(client: str, db: str | None, part: str) -> int:
    """Handle an event of CLIENT's hooks, JSON on standard input. Always exits with 0.

    Archives and replaces large tool outputs, reads transcripts, and writes a hand-off after a compaction.
    """
    numbers = part_of(part)
    if numbers is None:
        raise click.BadParameter(f"'{part}' is not a part such as 2/3.", param_hint="--part")
    return run_hook(client, db, numbers)
