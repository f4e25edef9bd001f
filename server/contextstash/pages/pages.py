"""The handlers of the pages."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from contextstash.base.bounded_cache import BoundedCache
from contextstash.base.project_names import project_name
from contextstash.display.visible_text import MAX_WHOLE, cut
from contextstash.pages.chart import HEIGHT, WIDTH, chart_of
from contextstash.pages.templates import page
from contextstash_storage.errors import NotFoundError

if TYPE_CHECKING:
    from contextstash.results import SessionLine
    from contextstash.stash import Stash
    from contextstash_storage.records import Session

SESSIONS_SHOWN = 25
MESSAGES_SHOWN = 100
OUTPUT_TOKENS = 8_000
"""Tokens of an output on one page. Like the numbers above it bounds a page; the rest is on the next one."""

MAX_HITS = 50
"""Of a search: the maximum of the service."""

MAX_LINES = 2_000
"""Lines of sessions in memory, some years of work."""

PROJECT_SESSIONS = 200
"""The newest sessions whose costs are added up by project: of each the calls are read."""

RUNNING = timedelta(days=1)
"""A session without a message for so long has ended: that its window is full concerns nobody any more."""

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

    @property
    def last_at(self) -> str:
        """When the last message came, as ISO 8601."""
        return self.line.last_message_at or self.line.updated_at

    @property
    def level(self) -> str:
        """How full the window is; empty if the session has ended."""
        return self.line.level if datetime.fromisoformat(self.last_at) > datetime.now(UTC) - RUNNING else ""


class Pages:
    """The handlers of all pages."""

    def __init__(self, stash: Stash) -> None:
        self._stash = stash
        self._lines: BoundedCache[str, tuple[datetime, SessionLine]] = BoundedCache(MAX_LINES)

    async def sessions(self, request: Request) -> Response:
        """The sessions, the one with the newest message first."""
        mark = await self._stash.mark()
        found = await self._stash.recent_sessions(limit=SESSIONS_SHOWN + 1, cursor=request.query_params.get("after"))
        rows = await self._told_apart(await self._rows(found[:SESSIONS_SHOWN]))
        next_cursor = rows[-1].line.session_id if len(found) > SESSIONS_SHOWN else None
        ids = short_ids([row.line.session_id for row in rows])
        return page(request, "sessions.html", mark=mark, rows=rows, ids=ids, next_cursor=next_cursor)

    async def costs(self, request: Request) -> Response:
        """What was billed and what was saved, by day, model, project and tool."""
        overview = await self._stash.overview()
        receipt = await self._stash.receipt()
        return page(request, "costs.html", overview=overview, receipt=receipt, projects=await self._project_costs())

    async def mark(self, _: Request) -> Response:
        """A mark that differs after any change: a page that sees another mark than its own loads itself again."""
        return PlainTextResponse(await self._stash.mark())

    async def session(self, request: Request) -> Response:
        """One session: how full its window is, now and over time, and its changes."""
        session_id = request.path_params["session_id"]
        mark = await self._stash.mark()
        [row] = await self._rows([await self._stash.read_session(session_id)])
        timeline = await self._stash.timeline(session_id)
        use = await self._stash.session_use(session_id)
        costs = [day.cost for day in use.days if day.cost is not None]
        return page(
            request,
            "session.html",
            mark=mark,
            status=await self._stash.context_status(session_id),
            row=row,
            use=use,
            receipt=await self._stash.receipt(session_id),
            calls=sum(day.calls for day in use.days),
            sent=sum(day.prompt_tokens for day in use.days),
            cached=sum(day.cached_tokens for day in use.days),
            cost=sum(costs) if costs else None,
            chart=chart_of(timeline) if timeline.points[-1].seq else None,
            width=WIDTH,
            height=HEIGHT,
        )

    async def messages(self, request: Request) -> Response:
        """A range of the history with what the model sees of it; or, by `message`, one message whole."""
        session_id = request.path_params["session_id"]
        mark = await self._stash.mark()
        session = await self._stash.read_session(session_id)
        total = session.counters.messages
        only = _number(request, "message", -1)
        if only >= total:
            raise NotFoundError(f"Session {session_id} has no message {only}: it has {total:,}.")
        size = MESSAGES_SHOWN if only < 0 else 1
        first = _number(request, "first", max(0, total - size)) if only < 0 else only
        first = max(0, min(first, total - 1))
        shown = await self._stash.read_shown_messages(session_id, first=first, limit=size)
        [row] = await self._rows([session])
        native = None
        if only >= 0:
            [recorded] = (await self._stash.read_messages(session_id, first=only, limit=1)).messages
            native = cut(json.dumps(recorded.message, ensure_ascii=False, indent=2), MAX_WHOLE)
        return page(
            request,
            "messages.html",
            mark=mark,
            title=row.title,
            page=shown,
            summaries={summary.summary_id: summary for summary in shown.summaries},
            native=native,
            earlier=max(0, first - MESSAGES_SHOWN) if first else None,
            last=max(0, total - MESSAGES_SHOWN),
        )

    async def output(self, request: Request) -> Response:
        """A page of an archived output."""
        handle, session_id = request.path_params["handle"], request.query_params.get("session")
        pattern = request.query_params.get("pattern", "")
        found = await self._stash.get_archived_output(
            handle,
            session_id=session_id,
            offset=max(1, _number(request, "offset", 1)),
            pattern=pattern or None,
            max_tokens=OUTPUT_TOKENS,
            masked=True,
        )
        call = await self._stash.read_call(handle, session_id=session_id)
        return page(request, "output.html", page=found, call=call, session_id=session_id, pattern=pattern)

    async def search(self, request: Request) -> Response:
        """The search results for some words, in all sessions or in one."""
        query = request.query_params.get("q", "")
        filters = {name: request.query_params.get(name) or None for name in ("session", "tool", "since", "until")}
        found, rows = None, []
        if query.strip():
            asked = {name: value for name, value in filters.items() if name != "session"}
            found = await self._stash.search_history(
                query, session_id=filters["session"], limit=MAX_HITS, unseen_first=False, line_breaks=True, **asked
            )
            named = {hit.session_id for hit in found.hits} | ({filters["session"]} - {None})
            rows = await self._rows([await self._stash.read_session(str(each)) for each in named])
        sessions = {row.line.session_id: row for row in rows}
        ids = short_ids(sessions)
        return page(
            request, "search.html", query=query, found=found, most=MAX_HITS, sessions=sessions, ids=ids, filters=filters
        )

    async def _rows(self, sessions: Sequence[Session]) -> list[Row]:
        projects = await self._stash.projects_of(sessions)
        return [Row(await self._line(each), project) for each, project in zip(sessions, projects, strict=True)]

    async def _line(self, session: Session) -> SessionLine:
        known = self._lines.get(session.session_id)
        if known is None or known[0] != session.updated_at:
            line = await self._stash.line_of(session)
            known = self._lines.set(session.session_id, (session.updated_at, line))
        return known[1]

    async def _told_apart(self, rows: Sequence[Row]) -> list[Row]:
        """The rows; those with the title of another one have the last prompt too."""
        count = Counter(row.title for row in rows)
        told = []
        for row in rows:
            last = None
            if count[row.title] > 1:
                last = await self._stash.last_prompt(await self._stash.read_session(row.line.session_id))
            told.append(replace(row, last_prompt=None if last == row.title else last))
        return told

    async def _project_costs(self) -> list[tuple[str, float]]:
        """The US dollars of the newest sessions by project, the dearest first."""
        sessions = await self._stash.recent_sessions(limit=PROJECT_SESSIONS)
        costs: defaultdict[str, float] = defaultdict(float)
        for session, project in zip(sessions, await self._stash.projects_of(sessions), strict=True):
            for day in (await self._stash.session_use(session.session_id)).days:
                costs[project_name(project) if project else "no project"] += day.cost or 0
        return sorted(((name, cost) for name, cost in costs.items() if cost), key=lambda each: -each[1])


def short_ids(session_ids: Collection[str]) -> dict[str, str]:
    """The shortest beginning of each id that tells it from the others."""

    def short(session_id: str) -> str:
        length = MIN_ID_CHARACTERS
        while length < len(session_id) and sum(other.startswith(session_id[:length]) for other in session_ids) > 1:
            length += 1
        return session_id[:length]

    return {each: short(each) for each in session_ids}


def _number(request: Request, name: str, default: int) -> int:
    given = request.query_params.get(name, "")
    return int(given) if given.isdecimal() and len(given) < 10 else default
