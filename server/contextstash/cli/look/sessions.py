"""`contextstash sessions`: the list of sessions."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from contextstash.base.project_names import project_name
from contextstash.cli.options import StashOpener, database_options
from contextstash.cli.output import print_json, print_table
from contextstash.cli.readable import when
from contextstash.clients.projects import deleted_by
from contextstash.outputs.counts import amount, counted
from contextstash.session_names import short_id

if TYPE_CHECKING:
    from contextstash.results import SessionLine, SessionList
    from contextstash.stash import Stash

PAGE = 200
"""Sessions that are read in one call. The list is the same with any value."""

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

    def keeps(self, line: SessionLine) -> bool:
        """Whether a session is listed."""
        is_sub_agent = line.session_id.startswith(f"{line.parent_session_id}.")
        return (
            (self.everything or not is_sub_agent)
            and (self.agent is None or line.agent == self.agent)
            and (self.project is None or self.project.casefold() in (line.project or "").casefold())
            and (self.text is None or self.text.casefold() in (line.title or "").casefold())
        )


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
    from contextstash.automatic_retention import news

    wanted = Wanted(**parts, everything=everything or as_json)
    found, names = opener.run(lambda stash: _listed(stash, wanted, sort, limit))
    if as_json:
        print_json(found)
        return
    if not found.sessions:
        click.echo(
            "No session matches." if any(parts.values()) else "No sessions yet. Record one: contextstash import PATH"
        )
    else:
        columns = ["session", "last", "messages", "tokens", "full", "client", "project", "title"]
        print_table(columns, map(_row, found.sessions, names), less_wanted=["project", "client", "messages", "tokens"])
        if deleted := [line.deleted_by for line in found.sessions if line.deleted_by]:
            what = f"{counted(len(deleted), 'session')} deleted by the client by {max(deleted)}"
            click.echo(f"Marked †: {what}, kept here whole.", err=True)
        if found.next_cursor:
            click.echo(f"More: contextstash sessions --limit {limit * 2}", err=True)
    if said := news(opener.file, is_read=sys.stderr.isatty()):
        click.echo(said, err=True)


async def _listed(stash: Stash, wanted: Wanted, sort: str, limit: int) -> tuple[SessionList, list[str]]:
    """The sessions to list, and for each the beginning of its id that is enough for a command."""
    from contextstash.results import SessionList

    found = await _matching(stash, wanted, limit + 1 if sort == "time" else None)
    if sort != "time":
        found.sort(key=lambda each: SORTS[sort](each[0]), reverse=True)
    lines = []
    for line, source in found[:limit]:
        day = await asyncio.to_thread(deleted_by, source)
        lines.append(line.model_copy(update={"deleted_by": day and day.isoformat()}))
    names = [await short_id(stash, line.session_id) for line in lines]
    return SessionList(sessions=lines, next_cursor=lines[-1].session_id if len(found) > limit else None), names


async def _matching(stash: Stash, wanted: Wanted, most: int | None) -> list[tuple[SessionLine, str | None]]:
    """The sessions that are wanted, the newest message first, each with its transcript; about `most`."""
    found: list[tuple[SessionLine, str | None]] = []
    cursor: str | None = None
    while page := await stash.recent_sessions(limit=min(PAGE, most or PAGE), cursor=cursor):
        for session, project in zip(page, await stash.projects_of(page), strict=True):
            line = (await stash.line_of(session)).model_copy(update={"project": project})
            if wanted.keeps(line):
                found.append((line, session.source))
        if most is not None and len(found) >= most:
            break
        cursor = page[-1].session_id
    return found


def _row(line: SessionLine, name: str) -> tuple[object, ...]:
    return (
        name,
        when(line.last_message_at or line.updated_at),
        line.messages,
        amount(line.tokens),
        f"{line.percent:.0f} %",
        line.agent or "-",
        project_name(line.project) if line.project else "-",
        f"{'† ' if line.deleted_by else ''}{line.title or '-'}",
    )
