"""`contextstash statusline`: one line on a session's window, for Claude Code's status line."""

from __future__ import annotations

import click


@click.command()
@click.option("--db", metavar="DATABASE", help="The database: a file. [default: a file in the user's data folder]")
def statusline(db: str | None) -> int:
    """Print Claude Code's status line: the window, what was given back, the cost so far.

    Reads Claude Code's JSON on standard input. `contextstash install claude-code --statusline` sets it up.
    """
    from contextstash.clients.status_line import run

    return run(db)
