"""`contextstash search`: find words in everything that was recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from contextstash.cli.console import echo, for_reader, in_commands, shortened, when
from contextstash.cli.options import Number, find_session, moment, stash_command
from contextstash.session.ids import OUTPUTS_SUFFIX
from contextstash.session_names import short_id
from contextstash_storage.errors import NotFoundError

if TYPE_CHECKING:
    from contextstash.results import Hit, SearchResult
    from contextstash.stash import Stash

MAX_TITLE_CHARACTERS = 60
"""Characters of a session's title above its hit: leaves room for the rest of the line in 80 columns."""


@stash_command("search")
@click.argument("words", nargs=-1, required=True)
@click.option("--session", help="Search only this session. [default: all sessions]")
@click.option(
    "--since", type=moment, metavar="TIME", help="Only from then on, such as 7d, 2026-05-31 or 2026-05-31T14:00."
)
@click.option("--limit", type=Number(1, 50), metavar="N", default=10, show_default=True)
async def search(stash: Stash, words: tuple[str, ...], session: str | None, **filters: Any) -> Any:
    """Search everything that was recorded, for whole words; texts with all of them come first."""
    found = await stash.search_history(
        " ".join(words),
        session_id=await find_session(stash, session) if session else None,
        unseen_first=False,
        **filters,
    )
    origins = [await _origin(stash, hit) for hit in found.hits]
    return found, lambda: _print_hits(found, origins)


def _print_hits(found: SearchResult, origins: Sequence[tuple[str, str]]) -> None:
    """Each hit: where it is, the piece that matches, and the command that shows it whole."""
    for hit, (title, short) in zip(found.hits, origins, strict=True):
        where = hit.handle or f"message {hit.seq}"
        heading = f"{hit.tool or hit.role}  {when(hit.created_at.isoformat())}  {title}{short}".rstrip()
        click.echo(f"{click.style(where, bold=True)}  {for_reader(heading)}")
        echo(f"  {hit.snippet}")
        if not hit.matched:
            click.secho("  (none of the words is here: the call, or the messages next to it, have them)", dim=True)
        echo(f"  in full: contextstash show {hit.handle or f'{short} --message {hit.seq}'}", dim=True)
    if found.note:
        echo(in_commands(found.note), err=True)


async def _origin(stash: Stash, hit: Hit) -> tuple[str, str]:
    """The session of a hit, as a person knows it: its title, and the id for the next command."""
    session_id = hit.session_id.removesuffix(OUTPUTS_SUFFIX)
    try:
        title = await stash.title_of(await stash.read_session(session_id))
    except NotFoundError:  # only its outputs are stored
        return "", session_id
    return f"“{shortened(title, MAX_TITLE_CHARACTERS)}”  " if title else "", await short_id(stash, session_id)
