"""`contextstash sessions`: the list of sessions."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

import click

from contextstash.cli.options import StashOpener, database_options
from contextstash.cli.output import print_json, print_table
from contextstash.cli.readable import short_id, when
from contextstash.context.text.counts import amount
from contextstash.files.project_names import project_name
from contextstash.hosts.deleted_transcripts import deleted_by
from contextstash.service.automatic_retention import news

if TYPE_CHECKING:
    from contextstash.service.results import SessionLine, SessionList
    from contextstash.service.stash import Stash

PAGE = 200
"""Sessions that are read in one call: the most that the service returns."""

SORTS: dict[str, Callable[[SessionLine], Any]] = {
    "tokens": lambda line: line.tokens,
    "messages": lambda line: line.messages,
    "full": lambda line: line.percent,
}


@dataclass(frozen=True)
class Wanted:
    """Which sessions are listed. `project` and `text` are parts of the project's folder and of the title."""

    project: str | None
    text: str | None
    agent: str | None
    everything: bool

    def keeps(self, line: SessionLine, project: str | None) -> bool:
        """Whether a session is listed."""
        is_sub_agent = line.session_id.startswith(f"{line.parent_session_id}.")
        return (
            (self.everything or not is_sub_agent)
            and (self.agent is None or line.agent == self.agent)
            and (self.project is None or self.project.casefold() in (project or "").casefold())
            and (self.text is None or self.text.casefold() in (line.title or "").casefold())
        )


@dataclass(frozen=True)
class Listed:
    """A session of the list. `name` is the beginning of its id that is enough for a command; --json has whole ids.
    `deleted`: the day by which the client has deleted its own transcript."""

    line: SessionLine
    name: str
    project: str | None
    deleted: date | None = None


@click.command()
@click.argument("text", required=False)
@click.option("--project", metavar="PART", help="Only sessions whose project's folder contains PART.")
@click.option("--agent", metavar="NAME", help="Only sessions of this client or agent.")
@click.option("--sort", type=click.Choice(["time", *SORTS]), default="time", show_default=True)
@click.option("--all", "everything", is_flag=True, help="Also list the sessions of sub-agents.")
@click.option("--limit", type=click.IntRange(1, 1_000), default=20, show_default=True)
@database_options
def sessions(opener: StashOpener, as_json: bool, sort: str, everything: bool, limit: int, **parts: str | None) -> None:
    """List the sessions, the one with the newest message first; with TEXT, those with TEXT in the title."""
    wanted = Wanted(**parts, everything=everything or as_json)
    found, more = opener.run(lambda stash: _listed(stash, wanted, sort, limit))
    if as_json:
        print_json(_as_list(found, more))
    elif not found:
        click.echo(
            "No session matches." if any(parts.values()) else "No sessions yet. Record one: contextstash import PATH"
        )
    else:
        columns = ["session", "last", "messages", "tokens", "full", "client", "project", "title"]
        print_table(columns, map(_row, found), less_wanted=["project", "client", "messages", "tokens"])
        if deleted := [each.deleted for each in found if each.deleted]:
            what = "1 session" if len(deleted) == 1 else f"{len(deleted)} sessions"
            click.echo(f"Marked †: {what} deleted by the client by {max(deleted)}, kept here whole.", err=True)
        if more:
            click.echo(f"More: contextstash sessions --limit {limit * 2}", err=True)
    if not as_json and (said := news(opener.file, is_read=sys.stderr.isatty())):
        click.echo(said, err=True)


async def _listed(stash: Stash, wanted: Wanted, sort: str, limit: int) -> tuple[list[Listed], bool]:
    """The sessions to list, and whether there are more."""
    found = [each async for each in _matching(stash, wanted, None if sort != "time" else limit + 1)]
    if sort != "time":
        found.sort(key=lambda each: SORTS[sort](each[0]), reverse=True)
    shown = [
        Listed(line, await short_id(stash, line.session_id), project, await _deleted_by(stash, line))
        for line, project in found[:limit]
    ]
    return shown, len(found) > limit


async def _deleted_by(stash: Stash, line: SessionLine) -> date | None:
    source = (await stash.read_session(line.session_id)).source
    return await asyncio.to_thread(deleted_by, source)


async def _matching(stash: Stash, wanted: Wanted, most: int | None) -> AsyncIterator[tuple[SessionLine, str | None]]:
    """The sessions that are wanted, the newest message first, each with its project; at most `most`."""
    cursor = None
    count = 0
    while True:
        page = await stash.list_sessions(limit=min(PAGE, most or PAGE), cursor=cursor)
        for line in page.sessions:
            [project] = await stash.projects_of([await stash.read_session(line.session_id)])
            if wanted.keeps(line, project):
                yield line, project
                count += 1
                if count == most:
                    return
        cursor = page.next_cursor
        if cursor is None:
            return


def _as_list(found: list[Listed], more: bool) -> SessionList:
    from contextstash.service.results import SessionList

    lines = [
        each.line.model_copy(
            update={"project": each.project, "deleted_by": each.deleted.isoformat() if each.deleted else None}
        )
        for each in found
    ]
    return SessionList(sessions=lines, next_cursor=lines[-1].session_id if more else None)


def _row(each: Listed) -> tuple[object, ...]:
    line = each.line
    return (
        each.name,
        when(line.last_message_at or line.updated_at),
        line.messages,
        amount(line.tokens),
        f"{line.percent:.0f} %",
        line.agent or "-",
        project_name(each.project) if each.project else "-",
        f"{'† ' if each.deleted else ''}{line.title or '-'}",
    )
