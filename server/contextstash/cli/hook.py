"""`contextstash hook`: what a client's lifecycle hooks call."""

from __future__ import annotations

import click

from contextstash.hosts.hooks.clients import HOOKED, run_hook


@click.command()
@click.argument("client", type=click.Choice(list(HOOKED)))
def hook(client: str) -> int:
    """Answer one of a client's hooks: the event comes as JSON on standard input. Always exits with 0.

    Large tool outputs are archived and replaced, transcripts are read, a hand-off is given after a compaction.
    """
    return run_hook(client)
