"""`contextstash search`: find words in everything that was recorded."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from contextstash.cli.command_words import in_commands
from contextstash.cli.completion import session_ids
from contextstash.cli.look.whole_message import readable_arguments
from contextstash.cli.options import StashOpener, database_options, find_session
from contextstash.cli.output import echo, for_reader, print_json, say, shortened
from contextstash.cli.readable import when
from contextstash.outputs.counts import counted
from contextstash.session_names import short_id
from contextstash_storage.errors import NotFoundError
from contextstash_storage.handles import HANDLE

if TYPE_CHECKING:
    from contextstash.results import Hit, OutputCall, OutputPage, SearchResult, SessionLine
    from contextstash.stash import Stash
    from contextstash_storage.records import Session

OUTPUTS_SUFFIX = ".outputs"
"""As in session/access.py, which is not imported here because it is slow to load."""

MAX_TITLE_CHARACTERS = 60
"""Characters of a session's title above its hit: leaves room for the rest of the line in 80 columns."""

MAX_TITLES = 1_000
"""Sessions whose titles are searched, in some milliseconds. Older ones have no title here."""

MAX_HITS = 50
"""Hits by which a hint says what else there is: the most that the service returns."""

SMALLEST_PAGE = 100
"""Tokens: as in queries/retrieval.py. Of the output only its size is shown."""

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
def search(opener: StashOpener, as_json: bool, **given: Any) -> None:
    """Search everything that was recorded, for whole words; texts with all of them come first."""
    wanted = Search(**given)
    words, since, until = wanted.words, wanted.since, wanted.until
    query = " ".join(words)
    if HANDLE.fullmatch(query):
        _show_handle(opener, as_json, query)
        return
    if since and until and since[: len(until)] > until:
        raise click.UsageError(f"--since {since} is after --until {until}: no time is between them.")
    found = opener.run(lambda stash: _find(stash, wanted, as_json))
    if as_json:
        print_json(found.result)
        return
    for line, short in found.titled:
        click.echo(f"session {click.style(for_reader(short), bold=True)}  {highlighted(line.title or '', words)}")
    for hit in found.result.hits:
        _print_hit(hit, words, found)
    if found.note and not (found.titled and not found.result.hits):
        say(in_commands(found.note), err=True)


@dataclass(frozen=True)
class Search:
    """The words, and the sessions to search."""

    words: tuple[str, ...]
    session: str | None
    scope: str | None
    tool: str | None
    since: str | None
    until: str | None
    limit: int


@dataclass(frozen=True)
class Found:
    """The hits, with their sessions; `titled` are the sessions with all words in their titles, `in_calls` the handles
    of outputs whose snippets are from the calls that they answer."""

    result: SearchResult
    note: str | None
    sessions: Mapping[str, Named] = field(default_factory=dict)
    titled: Sequence[tuple[Session, str]] = ()
    in_calls: frozenset[str] = frozenset()


async def _find(stash: Stash, wanted: Search, as_json: bool) -> Found:
    session_id = await find_session(stash, wanted.session) if wanted.session else None

    async def search(**without: Any) -> SearchResult:
        filters = {name: getattr(wanted, name) for name in ("scope", "tool", "since", "until", "limit")}
        return await stash.search_history(
            " ".join(wanted.words),
            session_id=session_id,
            project=None if wanted.session else str(Path.cwd()),
            unseen_first=False,
            line_breaks=not as_json,
            **{**filters, **without},
        )

    result = await search()
    if as_json:
        return Found(result, None)
    named = {_conversation(hit.session_id) for hit in result.hits if hit.session_id}
    return Found(
        result,
        (None if result.hits else await _hint(stash, wanted, search)) or result.note,
        {each: await _named(stash, each) for each in named},
        await _titled(stash, wanted) if session_id is None else [],
        frozenset([hit.handle for hit in result.hits if hit.handle and await _is_from_call(stash, hit, wanted.words)]),
    )


async def _is_from_call(stash: Stash, hit: Hit, words: Sequence[str]) -> bool:
    """Whether the piece that matches is from the call that an output answers: `show` prints that only with --call."""
    from contextstash.outputs.snippets import snippet

    matching = [(len(snippet(line, words)[1]), line) for line in hit.snippet.splitlines()]
    most, shown = max(matching, key=lambda each: each[0], default=(0, ""))
    if hit.handle is None or not most:
        return False
    call = await stash.read_call(hit.handle)
    return call is not None and any(_without_spaces(shown) in _without_spaces(text) for text in _texts(call.arguments))


def _texts(arguments: str) -> Iterator[str]:
    """The arguments of a call as they are printed, and each text in them, however deep: in a list a text is printed
    with its line breaks escaped."""
    yield readable_arguments(arguments)
    with suppress(ValueError, RecursionError):
        waiting = [json.loads(arguments)]
        while waiting:
            value = waiting.pop()
            if isinstance(value, str):
                yield value
            elif isinstance(value, dict | list):
                waiting += value.values() if isinstance(value, dict) else value


def _without_spaces(text: str) -> str:
    return "".join(text.split()).strip("…")


async def _titled(stash: Stash, wanted: Search) -> list[tuple[Session, str]]:
    """The newest sessions whose own titles contain all words, each with its short id. A title from the first prompt is
    found with the prompt."""
    if wanted.scope not in (None, "everywhere") or wanted.tool or wanted.since or wanted.until:
        return []
    words = " ".join(wanted.words).casefold().split()
    sessions = await stash.recent_sessions(limit=MAX_TITLES)
    found = [each for each in sessions if each.title and all(word in each.title.casefold() for word in words)]
    return [(each, await short_id(stash, each.session_id)) for each in found[: wanted.limit]]


async def _hint(stash: Stash, wanted: Search, found: Callable[..., Awaitable[SearchResult]]) -> str | None:
    """Why nothing was found, if it is not for the words; None to say what the search says."""
    if not (await stash.recent_sessions(limit=1)):
        return "Nothing is recorded yet. To record sessions: contextstash import PATH"
    if wanted.tool and (others := (await found(tool=None, limit=MAX_HITS)).hits):
        tools = sorted({hit.tool for hit in others if hit.tool})
        named = f"in calls of {', '.join(tools)}" if tools else "in messages only"
        return f"Nothing found in calls of '{wanted.tool}'. These words are found {named}."
    if (wanted.since or wanted.until) and (others := (await found(since=None, until=None, limit=MAX_HITS)).hits):
        days = sorted(hit.created_at.astimezone() for hit in others)
        return f"Nothing found in that time. These words are found from {days[0]:%Y-%m-%d} to {days[-1]:%Y-%m-%d}."
    narrower = None if wanted.scope == "everywhere" else wanted.scope or wanted.session
    if narrower and (others := (await found(scope="everywhere", limit=MAX_HITS)).hits):
        return _elsewhere(wanted, others)
    return None


def _elsewhere(wanted: Search, others: Sequence[Hit]) -> str:
    """In how many sessions the words are that were not found where they were searched for, and how to find them."""
    number = len({_conversation(hit.session_id) for hit in others if hit.session_id})
    sessions = f"{'at least ' * (len(others) == MAX_HITS)}{counted(number, 'session')}"
    given = [name for name, value in (("--session", wanted.session), ("--scope", wanted.scope)) if value]
    places = {"project": "this project", "outputs": "the session's outputs", "messages": "the session's messages"}
    where = places.get(wanted.scope or "", "this session")
    return f"Nothing found in {where}, but in {sessions}: leave {' and '.join(given)} out."


def _show_handle(opener: StashOpener, as_json: bool, handle: str) -> None:
    """A handle instead of words: what it is, and the command that prints it."""
    if handle.startswith("sum_"):
        echo(f"{handle} is a summary: contextstash show {handle}")
        return

    async def read(stash: Stash) -> tuple[OutputPage, OutputCall | None]:
        return await stash.get_archived_output(handle, max_tokens=SMALLEST_PAGE), await stash.read_call(handle)

    page, call = opener.run(read)
    if as_json:
        print_json(page)
        return
    where = f", message {call.seq} of session {call.session_id}" if call is not None else ""
    size = f"{counted(page.total_lines, 'line')}, {page.total_tokens:,} tokens"
    echo(f"{handle} is an output of {page.tool}, {size}{where}: contextstash show {handle}")


def _print_hit(hit: Hit, words: Sequence[str], found: Found) -> None:
    """A hit: where it is, the piece that matches, and the command that shows it whole."""
    line, short = found.sessions[_conversation(hit.session_id)] if hit.session_id else (None, "")
    where = click.style(hit.handle or f"message {hit.seq}", bold=True)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    heading = f"{hit.tool or hit.role}  {when(hit.created_at.isoformat())}  {_origin(line, short)}".rstrip()
    room = None if width is None else width - len(hit.handle or f"message {hit.seq}") - 2
    click.echo(f"{where}  {for_reader(heading if room is None else shortened(heading, room))}")
    for text in hit.snippet.splitlines():
        click.echo(f"  {highlighted(text if width is None else around_match(text, words, width - 2), words)}")
    if not hit.matched:
        click.secho("  (none of the words is here: the call, or the messages next to it, have them)", dim=True)
    command = (
        f"{hit.handle}{' --call' * (hit.handle in found.in_calls)}" if hit.handle else f"{short} --message {hit.seq}"
    )
    echo(f"  contextstash show {command}", dim=True)


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
    title = f"“{shortened(line.title, MAX_TITLE_CHARACTERS)}”  " if line is not None and line.title else ""
    return f"{title}{short}"


def around_match(text: str, words: Sequence[str], width: int) -> str:
    """A line of at most `width` characters; of a longer one, the part with the first of the words."""
    if len(text) <= width:
        return text
    found = _pattern(words).search(text) if words else None
    start = 0 if found is None or found.end() < width - 1 else max(0, found.start() - width // 3)
    return shortened(("…" if start else "") + text[start + (start > 0) :], width)


def highlighted(text: str, words: Sequence[str]) -> str:
    """The text, as a terminal may get it, with the words that were searched for in colour; a pipe gets none."""
    return _pattern(words).sub(lambda found: click.style(found[0], fg="yellow", bold=True), for_reader(text))


def _pattern(words: Sequence[str]) -> re.Pattern[str]:
    """Matches each of the words, in any case; nothing if there are none."""
    parts = [re.escape(part) for word in words for part in word.split() if part]
    return re.compile("|".join(parts) or r"(?!)", flags=re.IGNORECASE)
