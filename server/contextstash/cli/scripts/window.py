"""`contextstash window`: what a client's own window holds, for its plugin."""

from __future__ import annotations

import os

import click


@click.command()
@click.argument("client", type=click.Choice(["claude-code", "opencode", "pi"]))
@click.option("--db", metavar="DATABASE", help="The database: a file. [default: a file in the user's data folder]")
def window(client: str, db: str | None) -> int:
    """Answer a compaction of CLIENT: its plugin runs this, JSON on standard input and output.

    The module contextstash.clients.client_window describes both. Never asks a model.
    """
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    if db is not None:
        os.environ["CONTEXTSTASH_DB"] = db
    from contextstash.clients.client_window import run

    return run(client)
