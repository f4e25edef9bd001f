"""`contextstash search`: find words in everything that was recorded."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from contextstash.cli.command_words import in_commands
from contextstash.cli.completion import session_ids
from contextstash.cli.options import StashOpener, database_options, find_session
from contextstash.cli.output import print_json
from contextstash.cli.readable import short_id, when
from contextstash_storage.errors import NotFoundError

if TYPE_CHECKING:
    from contextstash.service.results import SearchResult, SessionLine
    from contextstash.service.stash import Stash

OUTPUTS_SUFFIX = ".outputs"
"""As in service/recording/output_archive.py, which is not imported here because it is slow to load."""

MAX_TITLE_CHARACTERS = 60
"""Of a session, above its hit: a guess at what leaves room for the rest of the line in 80 columns."""

Named = tuple["SessionLine | None", str]
"""A session and its short id; None if only its outputs are stored."""


@click.command()
@click.argument("words", nargs=-1, required=True)
@click.option("--session", shell_complete=session_ids, help="Search only this session. [default: all sessions]")
@click.option(
    "--scope",
    type=click.Choice(["session", "outputs", "messages", "project", "everywhere"]),
    help="`project`: the sessions of clients that ran in this folder or below it; with --session, in that session's.",
)
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

    async def find(stash: Stash) -> tuple[SearchResult, dict[str, Named]]:
        session_id = await find_session(stash, session) if session else None
        found = await stash.search_history(
            " ".join(words),
            session_id=session_id,
            limit=limit,
            scope=scope,
            tool=tool,
            since=since,
            until=until,
            project=None if session else str(Path.cwd()),
            unseen_first=False,
        )
        named = {_conversation(hit.session_id) for hit in found.hits if hit.session_id and not as_json}
        return found, {each: await _named(stash, each) for each in named}

    result, sessions = opener.run(find)
    if as_json:
        print_json(result)
        return
    for hit in result.hits:
        where = click.style(hit.handle or f"message {hit.seq}", bold=True)
        origin = _origin(*sessions[_conversation(hit.session_id)]) if hit.session_id else ""
        click.echo(f"{where}  {hit.tool or hit.role}  {when(hit.created_at.isoformat())}  {origin}".rstrip())
        click.echo(f"  {highlighted(' '.join(hit.snippet.split()), words)}")
    if result.note:
        click.echo(in_commands(result.note), err=True)


def _conversation(session_id: str) -> str:
    """The session that an archive of outputs belongs to; any other session itself."""
    return session_id.removesuffix(OUTPUTS_SUFFIX)


async def _named(stash: Stash, session_id: str) -> Named:
    try:
        return await stash.session_line(session_id), await short_id(stash, session_id)
    except NotFoundError:
        return None, session_id


def _origin(line: SessionLine | None, short: str) -> str:
    """The session of a hit, as a person knows it: its title, and the id for the next command."""
    title = f"“{line.title[:MAX_TITLE_CHARACTERS]}”  " if line is not None and line.title else ""
    return f"{title}{short}"


def highlighted(text: str, words: Sequence[str]) -> str:
    """The text with the words that were searched for in colour; a pipe gets none."""
    parts = [re.escape(part) for word in words for part in word.split() if part]
    if not parts:
        return text
    return re.sub(
        "|".join(parts), lambda found: click.style(found[0], fg="yellow", bold=True), text, flags=re.IGNORECASE
    )
