"""`contextstash search`: find words in everything that was recorded."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from contextstash.cli.console import echo, for_reader, in_commands, say, shortened, when
from contextstash.cli.options import find_session, moment, stash_command
from contextstash.session_names import short_id
from contextstash_storage.errors import NotFoundError

if TYPE_CHECKING:
    from contextstash.results import Hit, SearchResult
    from contextstash.stash import Stash

OUTPUTS_SUFFIX = ".outputs"
"""As in session/access.py, which is not imported here because it is slow to load."""

MAX_TITLE_CHARACTERS = 60
"""Characters of a session's title above its hit: leaves room for the rest of the line in 80 columns."""

ALL_WORDS = "No text has all of these words."

SCOPES = click.Choice(["session", "outputs", "messages", "project", "everywhere"])


@stash_command("search")
@click.argument("words", nargs=-1, required=True)
@click.option("--session", help="Search only this session. [default: all sessions]")
@click.option(
    "--scope",
    type=SCOPES,
    help="`project`: the sessions of clients that ran in this folder or below it; with --session, in that session's.",
)
@click.option(
    "--since", type=moment, metavar="TIME", help="Only from then on, such as 7d, 2026-05-31 or 2026-05-31T14:00."
)
@click.option("--limit", type=click.IntRange(1, 50), metavar="N", default=10, show_default=True)
async def search(stash: Stash, words: tuple[str, ...], session: str | None, **filters: Any) -> Any:
    """Search everything that was recorded, for whole words; texts with all of them come first."""
    found = await stash.search_history(
        " ".join(words),
        session_id=await find_session(stash, session) if session else None,
        project=None if session else str(Path.cwd()),
        unseen_first=False,
        line_breaks=not click.get_current_context().params["as_json"],
        **filters,
    )
    origins = [await _origin(stash, hit) for hit in found.hits]
    note = await _note(stash, found, words, [name for name in ("scope", "since") if filters[name]])
    return found, lambda: _print_hits(found.hits, origins, words, note)


async def _note(stash: Stash, found: SearchResult, words: Sequence[str], limits: Sequence[str]) -> str | None:
    """What else to know: why nothing was found, or that no text has all words."""
    if found.hits:
        every = {*" ".join(words).casefold().split()}
        return found.note or (None if any(len(hit.matched) >= len(every) for hit in found.hits) else ALL_WORDS)
    if not await stash.recent_sessions(limit=1):
        return "Nothing is recorded yet. To record those of your clients: contextstash import"
    given = " and ".join(f"--{name}" for name in limits)
    return f"Nothing found within {given}: leave that out to search everything." if given else found.note


def _print_hits(
    hits: Sequence[Hit], origins: Sequence[tuple[str, str]], words: Sequence[str], note: str | None
) -> None:
    """Each hit: where it is, the piece that matches, and the command that shows it whole."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for hit, (title, short) in zip(hits, origins, strict=True):
        where = hit.handle or f"message {hit.seq}"
        heading = f"{hit.tool or hit.role}  {when(hit.created_at.isoformat())}  {title}{short}".rstrip()
        if width is not None:
            heading = shortened(heading, width - len(where) - 2)
        click.echo(f"{click.style(where, bold=True)}  {for_reader(heading)}")
        for text in hit.snippet.splitlines():
            click.echo(f"  {highlighted(text if width is None else around_match(text, words, width - 2), words)}")
        if not hit.matched:
            click.secho("  (none of the words is here: the call, or the messages next to it, have them)", dim=True)
        echo(f"  in full: contextstash show {hit.handle or f'{short} --message {hit.seq}'}", dim=True)
    if note:
        say(in_commands(note), err=True)


async def _origin(stash: Stash, hit: Hit) -> tuple[str, str]:
    """The session of a hit, as a person knows it: its title, and the id for the next command."""
    session_id = hit.session_id.removesuffix(OUTPUTS_SUFFIX)
    try:
        title = (await stash.session_line(session_id)).title
    except NotFoundError:  # only its outputs are stored
        return "", session_id
    return f"“{shortened(title, MAX_TITLE_CHARACTERS)}”  " if title else "", await short_id(stash, session_id)


def around_match(text: str, words: Sequence[str], width: int) -> str:
    """A line of at most `width` characters; of a longer one, the part with the first of the words."""
    if len(text) <= width:
        return text
    found = _pattern(words).search(text)
    start = 0 if found is None or found.end() < width - 1 else max(0, found.start() - width // 3)
    return shortened(("…" if start else "") + text[start + (start > 0) :], width)


def highlighted(text: str, words: Sequence[str]) -> str:
    """The text, as a terminal may get it, with the words that were searched for in colour; a pipe gets none."""
    return _pattern(words).sub(lambda found: click.style(found[0], fg="yellow", bold=True), for_reader(text))


def _pattern(words: Sequence[str]) -> re.Pattern[str]:
    """Matches each of the words, in any case; nothing if there are none."""
    parts = [re.escape(part) for word in words for part in word.split() if part]
    return re.compile("|".join(parts) or r"(?!)", flags=re.IGNORECASE)
