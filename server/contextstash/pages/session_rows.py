"""The sessions as rows of a list, with their projects: filtered, sorted, and cached as long as they do not change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from contextstash.base.bounded_cache import BoundedCache
from contextstash.base.project_names import project_name
from contextstash.pages.background_values import Computed

if TYPE_CHECKING:
    from contextstash.results import SessionLine
    from contextstash.stash import Stash
    from contextstash_storage.records import Session

MAX_ROWS = 2_000
"""Sessions that a filter, another order or the list of projects looks at, the newest first: some years of work. Older
ones are not found by them."""

READ_AT_ONCE = 200

SORTS = {"time": "last message", "tokens": "tokens", "messages": "messages", "full": "window"}
"""The orders of a list, and their names."""

_KEYS: dict[str, Callable[[SessionLine], Any]] = {
    "tokens": lambda line: line.tokens,
    "messages": lambda line: line.messages,
    "full": lambda line: line.percent,
}


MIN_ID_CHARACTERS = 8
"""Characters of a short id: those of a UUID up to its first hyphen."""


@dataclass(frozen=True, slots=True)
class Row:
    """A session of a list. `last_prompt` is what the user asked last, if another session of the list has its title."""

    line: SessionLine
    project: str | None
    last_prompt: str | None = None

    @property
    def title(self) -> str:
        """The title, or the id if there is none."""
        return self.line.title or self.line.session_id

    @property
    def project_name(self) -> str:
        """How the project is shown; empty if there is none."""
        return project_name(self.project) if self.project else ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which sessions are listed, and in which order. `project` is the folder of one, `text` a part of a title or id."""

    project: str | None = None
    text: str | None = None
    sort: str = "time"

    @property
    def is_filtered(self) -> bool:
        """Whether this is not the plain list."""
        return bool(self.project or self.text or self.sort != "time")

    def keeps(self, row: Row) -> bool:
        """Whether a session is listed."""
        named = f"{row.line.title or ''} {row.line.session_id}".casefold()
        return (not self.project or row.project == self.project) and (self.text or "").casefold() in named


class SessionRows:
    """The rows of a stash's sessions."""

    def __init__(self) -> None:
        self._lines: BoundedCache[str, tuple[datetime, SessionLine]] = BoundedCache(MAX_ROWS)
        self._named: set[str] = set()
        self._all_rows = Computed("the list of projects", self._all)

    async def page(self, stash: Stash, limit: int, cursor: str | None) -> tuple[list[Row], str | None]:
        """One page of the plain list, and the cursor of the next one."""
        found = await stash.recent_sessions(limit=limit + 1, cursor=cursor)
        rows = await self._told_apart(stash, await self.rows(stash, found[:limit]))
        return rows, found[limit - 1].session_id if len(found) > limit else None

    async def matching(self, stash: Stash, wanted: Wanted, limit: int) -> list[Row]:
        """The first sessions that are wanted, in the wanted order."""
        found = [row for row in await self._all(stash) if wanted.keeps(row)]
        if wanted.sort in _KEYS:
            found.sort(key=lambda row: _KEYS[wanted.sort](row.line), reverse=True)
        return await self._told_apart(stash, found[:limit])

    def projects(self, stash: Stash, mark: str) -> list[str]:
        """The projects of the sessions, in order: those known so far. The sessions of a stash with another mark than
        the last one are read in the background, because of many of them that takes longer than a page may."""
        self._all_rows.known(stash, mark)
        return sorted(self._named)

    async def row(self, stash: Stash, session: Session) -> Row:
        """The row of one session."""
        [row] = await self.rows(stash, [session])
        return row

    async def rows(self, stash: Stash, sessions: Sequence[Session]) -> list[Row]:
        """The rows of these sessions."""
        lines = [await self._line(stash, session) for session in sessions]
        projects = await stash.projects_of(sessions)
        self._named |= {project for project in projects if project}
        return [Row(line, project) for line, project in zip(lines, projects, strict=True)]

    async def _told_apart(self, stash: Stash, rows: list[Row]) -> list[Row]:
        """The rows; those with the title of another one have the last prompt too."""
        count = Counter(row.title for row in rows)
        told = []
        for row in rows:
            last = None
            if count[row.title] > 1:
                last = await stash.last_prompt(await stash.read_session(row.line.session_id))
            told.append(replace(row, last_prompt=None if last == row.title else last))
        return told

    async def _all(self, stash: Stash) -> list[Row]:
        found: list[Session] = []
        while len(found) < MAX_ROWS:
            page = await stash.recent_sessions(limit=READ_AT_ONCE, cursor=found[-1].session_id if found else None)
            found += page
            if len(page) < READ_AT_ONCE:
                break
        return await self.rows(stash, found)

    async def _line(self, stash: Stash, session: Session) -> SessionLine:
        known = self._lines.get(session.session_id)
        if known is None or known[0] != session.updated_at:
            known = self._lines.set(session.session_id, (session.updated_at, await stash.line_of(session)))
        return known[1]


def short_ids(session_ids: Collection[str]) -> dict[str, str]:
    """The shortest beginning of each id that tells it from the others."""
    return {each: _short_id(each, session_ids) for each in session_ids}


def _short_id(session_id: str, among: Collection[str]) -> str:
    length = MIN_ID_CHARACTERS
    while length < len(session_id) and sum(other.startswith(session_id[:length]) for other in among) > 1:
        length += 1
    return session_id[:length]
