"""`contextstash hook`: what a client's lifecycle hooks call."""

from __future__ import annotations

from importlib import import_module

import click

from contextstash.__main__ import HOOKED


@click.command()
@click.argument("client", type=click.Choice(list(HOOKED)))
def hook(client: str) -> int:
    """Answer one of a client's hooks: the event comes as JSON on standard input. Always exits with 0.

    Large tool outputs are archived and replaced, transcripts are read, a hand-off is given after a compaction.
    """
    from contextstash.hosts.hooks.dispatch import run

    return run(import_module(f"contextstash.hosts.hooks.{HOOKED[client]}").HOST)
