"""`contextstash search`: find words in everything that was recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from contextstash.cli.completion import session_ids
from contextstash.cli.options import Opening, database_options, find_session
from contextstash.cli.output import print_json

if TYPE_CHECKING:
    from contextstash.service.results import SearchResult
    from contextstash.service.stash import Stash


@click.command()
@click.argument("words", nargs=-1, required=True)
@click.option("--session", shell_complete=session_ids, help="Only in this session. [default: in all]")
@click.option("--scope", type=click.Choice(["session", "outputs", "messages", "everywhere"]))
@click.option("--limit", type=click.IntRange(1, 50), default=10, show_default=True)
@database_options
def search(
    opening: Opening, as_json: bool, words: tuple[str, ...], session: str | None, scope: str | None, limit: int
) -> None:
    """Find words in everything that was ever recorded."""

    async def find(stash: Stash) -> SearchResult:
        session_id = await find_session(stash, session) if session else None
        return await stash.search_history(" ".join(words), session_id=session_id, limit=limit, scope=scope)

    answer = opening.run(find)
    if as_json:
        print_json(answer)
        return
    for hit in answer.hits:
        where = hit.handle or f"message {hit.seq}"
        click.secho(f"{where}  {hit.session_id}  {hit.role}", bold=True)
        click.echo(f"  {' '.join(hit.snippet.split())}")
    if answer.note:
        click.echo(answer.note)
