"""The handlers of the pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from contextstash.pages.templates import page
from contextstash_storage.errors import NotFoundError

if TYPE_CHECKING:
    from contextstash.stash import Stash

SESSIONS_SHOWN = 25
MESSAGES_SHOWN = 100
OUTPUT_TOKENS = 8_000
"""Tokens of an output on one page. Like the numbers above it bounds a page; the rest is on the next one."""

MAX_HITS = 50
"""Of a search: the maximum of the service."""


class Pages:
    """The handlers of all pages."""

    def __init__(self, stash: Stash) -> None:
        self._stash = stash

    async def sessions(self, request: Request) -> Response:
        """The sessions, the one with the newest message first."""
        found = await self._stash.recent_sessions(limit=SESSIONS_SHOWN + 1, cursor=request.query_params.get("after"))
        lines = await self._stash.lines_of(found[:SESSIONS_SHOWN])
        next_cursor = lines[-1].session_id if len(found) > SESSIONS_SHOWN else None
        return page(request, "sessions.html", lines=lines, next_cursor=next_cursor)

    async def costs(self, request: Request) -> Response:
        """What was billed and what was saved, by day and model."""
        return page(request, "costs.html", overview=await self._stash.overview(), receipt=await self._stash.receipt())

    async def session(self, request: Request) -> Response:
        """One session: how full its window is, now and over time, and its changes."""
        session_id = request.path_params["session_id"]
        line = await self._stash.line_of(await self._stash.read_session(session_id))
        return page(
            request,
            "session.html",
            line=line,
            status=await self._stash.context_status(session_id),
            receipt=await self._stash.receipt(session_id),
            timeline=await self._stash.timeline(session_id),
        )

    async def messages(self, request: Request) -> Response:
        """A range of the history with what the model sees of it; or, by `message`, one message whole."""
        session_id = request.path_params["session_id"]
        session = await self._stash.read_session(session_id)
        total = session.counters.messages
        only = _number(request, "message", -1)
        if only >= total:
            raise NotFoundError(f"Session {session_id} has no message {only}: it has {total:,}.")
        size = MESSAGES_SHOWN if only < 0 else 1
        first = _number(request, "first", max(0, total - size)) if only < 0 else only
        first = max(0, min(first, total - 1))
        shown = await self._stash.read_shown_messages(session_id, first=first, limit=size)
        line = await self._stash.line_of(session)
        return page(
            request,
            "messages.html",
            line=line,
            page=shown,
            summaries={summary.first_seq: summary for summary in shown.summaries},
            is_whole=only >= 0,
            earlier=max(0, first - MESSAGES_SHOWN) if first else None,
            last=max(0, total - MESSAGES_SHOWN),
        )

    async def output(self, request: Request) -> Response:
        """A page of an archived output."""
        handle, session_id = request.path_params["handle"], request.query_params.get("session")
        found = await self._stash.get_archived_output(
            handle,
            session_id=session_id,
            offset=max(1, _number(request, "offset", 1)),
            max_tokens=OUTPUT_TOKENS,
            masked=True,
        )
        place, output = await self._stash.find_output(handle, session_id)
        return page(request, "output.html", page=found, place=place, seq=output.seq, session_id=session_id)

    async def search(self, request: Request) -> Response:
        """The search results for some words, in all sessions or in one."""
        query, session_id = request.query_params.get("q", ""), request.query_params.get("session") or None
        found = None
        named = {session_id} - {None}
        if query.strip():
            found = await self._stash.search_history(query, session_id=session_id, limit=MAX_HITS, unseen_first=False)
            named |= {hit.session_id for hit in found.hits}
        sessions = {each: await self._stash.line_of(await self._stash.read_session(str(each))) for each in named}
        return page(
            request, "search.html", query=query, found=found, most=MAX_HITS, sessions=sessions, session_id=session_id
        )


def _number(request: Request, name: str, default: int) -> int:
    given = request.query_params.get(name, "")
    return int(given) if given.isdecimal() and len(given) < 10 else default
