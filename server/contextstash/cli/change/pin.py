"""`contextstash pin`: keep outputs or files in a session's view, whatever their age."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from contextstash.cli.command_words import in_commands
from contextstash.cli.completion import session_ids
from contextstash.cli.options import StashOpener, database_options, find_session
from contextstash.cli.output import echo, print_json
from contextstash.safety.secret_masks import masked

if TYPE_CHECKING:
    from contextstash.results import ConfigureResult
    from contextstash.stash import Stash

RULE = "rule:"
"""Begins a pin that is a rule."""


@click.command()
@click.argument("pins", nargs=-1, required=True)
@click.option("--session", shell_complete=session_ids, help="Their session. [default: the one with the newest message]")
@click.option("--remove", is_flag=True, help="Remove these pins instead of adding them.")
@database_options
def pin(opener: StashOpener, as_json: bool, session: str | None, pins: tuple[str, ...], remove: bool) -> None:
    """Keep outputs in a session's view: by handle (out_…), or the newest output that shows a file, by its path; or a
    rule, in words ("never push to main")."""
    named = [_pin(each) for each in pins]

    async def work(stash: Stash) -> ConfigureResult:
        session_id = await find_session(stash, session)
        added, removed = ([], named) if remove else (named, [])
        return await stash.configure_session(session_id, pin=added, unpin=removed)

    result = opener.run(work)
    if as_json:
        print_json(result)
        return
    if result.note:
        echo(masked(in_commands(result.note)))
    now = ", ".join(map(str, result.settings.get("pin") or ())) or "nothing"
    echo(f"Pinned in session {result.session_id}: {masked(now)}.")


def _pin(text: str) -> str:
    """The pin as the tools take it: several words that are no file's path are a rule."""
    is_rule = " " in text and not text.startswith(RULE) and not Path(text).exists()
    return f"{RULE} {text}" if is_rule else text
