"""`contextstash search`: find words in everything that was recorded."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from contextstash.cli.console import echo, for_reader, in_commands, print_json, say, shortened, when
from contextstash.cli.options import StashOpener, database_options, find_session
from contextstash.outputs.counts import counted
from contextstash.session_names import short_id
from contextstash_storage.errors import NotFoundError
from contextstash_storage.handles import HANDLE

if TYPE_CHECKING:
    from contextstash.results import Hit, SearchResult
    from contextstash.stash import Stash

OUTPUTS_SUFFIX = ".outputs"
"""As in session/access.py, which is not imported here because it is slow to load."""

MAX_TITLE_CHARACTERS = 60
"""Characters of a session's title above its hit: leaves room for the rest of the line in 80 columns."""

MAX_HITS = 50
"""Hits by which a hint says what else there is: the most that the service returns."""

SMALLEST_PAGE = 100
"""Tokens: as in queries/retrieval.py. Of the output only its size is shown."""

SCOPES = click.Choice(["session", "outputs", "messages", "project", "everywhere"])


@click.command()
@click.argument("words", nargs=-1, required=True)
@click.option("--session", help="Search only this session. [default: all sessions]")
@click.option(
    "--scope",
    type=SCOPES,
    help="`project`: the sessions of clients that ran in this folder or below it; with --session, in that session's.",
)
@click.option("--tool", help="Only calls of this tool, by its whole name.")
@click.option("--since", metavar="TIME", help="Only from this date or time on, such as 2026-05-31 or 2026-05-31T14:00.")
@click.option("--until", metavar="TIME", help="Only up to this date or time, included.")
@click.option("--limit", type=click.IntRange(1, 50), default=10, show_default=True)
@database_options
def search(opener: StashOpener, as_json: bool, words: tuple[str, ...], session: str | None, **filters: Any) -> None:
    """Search everything that was recorded, for whole words; texts with all of them come first."""
    since, until = filters["since"], filters["until"]
    if HANDLE.fullmatch(" ".join(words)):
        opener.run(lambda stash: _show_handle(stash, as_json, words[0]))
        return
    if since and until and since[: len(until)] > until:
        raise click.UsageError(f"--since {since} is after --until {until}: no time is between them.")
    opener.run(lambda stash: _search(stash, as_json, words, session, filters))


async def _search(
    stash: Stash, as_json: bool, words: Sequence[str], session: str | None, filters: dict[str, Any]
) -> None:
    session_id = await find_session(stash, session) if session else None

    async def found(**without: Any) -> SearchResult:
        return await stash.search_history(
            " ".join(words),
            session_id=session_id,
            project=None if session else str(Path.cwd()),
            unseen_first=False,
            line_breaks=not as_json,
            **{**filters, **without},
        )

    result = await found()
    if as_json:
        print_json(result)
        return
    for hit in result.hits:
        await _print_hit(stash, hit, words)
    note = result.note
    if not result.hits:
        note = await _hint(stash, session, filters, found) or note
    elif not any(len(hit.matched) >= len({*" ".join(words).casefold().split()}) for hit in result.hits):
        note = note or "No text has all of these words."
    if note:
        say(in_commands(note), err=True)


async def _hint(
    stash: Stash, session: str | None, filters: dict[str, Any], found: Callable[..., Awaitable[SearchResult]]
) -> str | None:
    """Why nothing was found, if it is not for the words; None to say what the search says."""
    if not (await stash.recent_sessions(limit=1)):
        return "Nothing is recorded yet. To record sessions: contextstash import PATH"
    limiting = [f"--{name}" for name in ("scope", "tool", "since", "until") if filters[name]] + ["--session"] * bool(
        session
    )
    if not limiting:
        return None
    others = (await found(scope="everywhere", tool=None, since=None, until=None, limit=MAX_HITS)).hits
    number = len({_conversation(hit.session_id) for hit in others if hit.session_id})
    where = f"Nothing found there, but in {'at least ' * (len(others) == MAX_HITS)}{counted(number, 'session')}"
    return f"{where}: leave {' and '.join(limiting)} out." if number else None


async def _show_handle(stash: Stash, as_json: bool, handle: str) -> None:
    """Print what a handle is, and the command that prints it whole."""
    if handle.startswith("sum_"):
        echo(f"{handle} is a summary: contextstash show {handle}")
        return
    page = await stash.get_archived_output(handle, max_tokens=SMALLEST_PAGE)
    if as_json:
        print_json(page)
        return
    call = await stash.read_call(handle)
    where = f", message {call.seq} of session {call.session_id}" if call is not None else ""
    size = f"{counted(page.total_lines, 'line')}, {page.total_tokens:,} tokens"
    echo(f"{handle} is an output of {page.tool}, {size}{where}: contextstash show {handle}")


async def _print_hit(stash: Stash, hit: Hit, words: Sequence[str]) -> None:
    """A hit: where it is, the piece that matches, and the command that shows it whole."""
    title, short = await _origin(stash, hit)
    where = hit.handle or f"message {hit.seq}"
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    heading = f"{hit.tool or hit.role}  {when(hit.created_at.isoformat())}  {title}{short}".rstrip()
    if width is not None:
        heading = shortened(heading, width - len(where) - 2)
    click.echo(f"{click.style(where, bold=True)}  {for_reader(heading)}")
    for text in hit.snippet.splitlines():
        click.echo(f"  {highlighted(text if width is None else around_match(text, words, width - 2), words)}")
    if not hit.matched:
        click.secho("  (none of the words is here: the call, or the messages next to it, have them)", dim=True)
    echo(f"  contextstash show {hit.handle or f'{short} --message {hit.seq}'}", dim=True)


def _conversation(session_id: str) -> str:
    """The session that an archive of outputs belongs to; any other session itself."""
    return session_id.removesuffix(OUTPUTS_SUFFIX)


async def _origin(stash: Stash, hit: Hit) -> tuple[str, str]:
    """The session of a hit, as a person knows it: its title, and the id for the next command."""
    session_id = _conversation(hit.session_id)
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
