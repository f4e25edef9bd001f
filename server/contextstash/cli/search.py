"""`contextstash search`: find words in everything that was recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from contextstash.cli.command_words import in_commands
from contextstash.cli.completion import session_ids
from contextstash.cli.options import StashOpener, database_options, find_session
from contextstash.cli.output import print_json

if TYPE_CHECKING:
    from contextstash.service.results import SearchResult
    from contextstash.service.stash import Stash


@click.command()
@click.argument("words", nargs=-1, required=True)
@click.option("--session", shell_complete=session_ids, help="Search only this session. [default: all sessions]")
@click.option("--scope", type=click.Choice(["session", "outputs", "messages", "everywhere"]))
@click.option("--tool", help="Only calls of this tool, by its whole name.")
@click.option("--since", metavar="TIME", help="Only from this date or time on, such as 2026-05-31 or 2026-05-31T14:00.")
@click.option("--until", metavar="TIME", help="Only up to this date or time, included.")
@click.option("--limit", type=click.IntRange(1, 50), default=10, show_default=True)
@database_options
def search(
    opener: StashOpener,
    as_json: bool,
    words: tuple[str, ...],
    session: str | None,
    scope: str | None,
    tool: str | None,
    since: str | None,
    until: str | None,
    limit: int,
) -> None:
    """Search everything that was recorded."""

    async def find(stash: Stash) -> SearchResult:
        session_id = await find_session(stash, session) if session else None
        return await stash.search_history(
            " ".join(words), session_id=session_id, limit=limit, scope=scope, tool=tool, since=since, until=until
        )

    result = opener.run(find)
    if as_json:
        print_json(result)
        return
    for hit in result.hits:
        where = hit.handle or f"message {hit.seq}"
        click.secho(f"{where}  {hit.session_id}  {hit.tool or hit.role}  {hit.created_at:%Y-%m-%d %H:%M}", bold=True)
        click.echo(f"  {' '.join(hit.snippet.split())}")
    if result.note:
        click.echo(in_commands(result.note))
