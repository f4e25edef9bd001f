"""The handlers of the pages and of their buttons."""

from __future__ import annotations

import hmac
import json
from collections import OrderedDict
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from contextstash.service.queries.proxy_report import report_lines
from contextstash.service.results import Timeline
from contextstash.ui.chart import HEIGHT, WIDTH, chart_of
from contextstash.ui.long_texts import MAX_WHOLE, cut
from contextstash_storage.errors import BadInputError, NotFoundError

if TYPE_CHECKING:
    from contextstash.service.stash import Stash
    from contextstash.service.waiting import OpenedStash
    from contextstash.ui.templates import Templates

SESSIONS_SHOWN = 50
MESSAGES_SHOWN = 60
OUTPUT_TOKENS = 8_000
"""Of an output on one page. These three are guesses at what a reader scrolls through."""

MAX_TIMELINES = 32
"""Timelines in memory: a guess at how many sessions one person has open."""

MAX_HITS = 50
"""Of a search: the maximum of the service."""


class Pages:
    """The handlers of all pages."""

    def __init__(self, stash: OpenedStash, templates: Templates) -> None:
        self._stash = stash
        self._templates = templates
        self._timelines: OrderedDict[tuple[str, str], Timeline] = OrderedDict()

    async def sessions(self, request: Request) -> Response:
        """All sessions, the one changed last first."""
        stash = await self._stash.get()
        listed = await stash.list_sessions(limit=SESSIONS_SHOWN, cursor=request.query_params.get("after"))
        return self._templates.page(request, "sessions.html", listed=listed)

    async def session(self, request: Request) -> Response:
        """One session: how full its window is, now and over time, and its changes."""
        return await self._session(request, request.path_params["session_id"])

    async def messages(self, request: Request) -> Response:
        """A range of the history, side by side with what the model sees of it."""
        session_id = request.path_params["session_id"]
        stash = await self._stash.get()
        total = (await stash.read_session(session_id)).counters.messages
        first = _number(request, "first", max(0, total - MESSAGES_SHOWN))
        first = max(0, min(first, total - 1))
        page = await stash.read_beside(session_id, first=first, limit=MESSAGES_SHOWN)
        shown = {summary.summary_id: summary for summary in page.summaries}
        return self._templates.page(
            request,
            "messages.html",
            page=page,
            summaries=shown,
            earlier=max(0, first - MESSAGES_SHOWN) if first else None,
            last=max(0, total - MESSAGES_SHOWN),
        )

    async def message(self, request: Request) -> Response:
        """One whole message, as recorded."""
        session_id, seq = request.path_params["session_id"], request.path_params["seq"]
        stash = await self._stash.get()
        page = await stash.read_beside(session_id, first=seq, limit=1)
        if not page.messages:
            raise NotFoundError(f"Session {session_id} has no message {seq}: it has {page.total:,}.")
        [recorded] = (await stash.read_messages(session_id, first=seq, limit=1)).messages
        native = cut(json.dumps(recorded.message, ensure_ascii=False, indent=2), MAX_WHOLE)
        return self._templates.page(request, "message.html", page=page, message=page.messages[0], native=native)

    async def output(self, request: Request) -> Response:
        """A page of an archived output."""
        stash = await self._stash.get()
        session_id = request.query_params.get("session")
        page = await stash.get_archived_output(
            request.path_params["handle"],
            session_id=session_id,
            offset=_number(request, "offset", 1),
            pattern=request.query_params.get("pattern") or None,
            max_tokens=OUTPUT_TOKENS,
        )
        return self._templates.page(
            request, "output.html", page=page, session_id=session_id, pattern=request.query_params.get("pattern", "")
        )

    async def summary(self, request: Request) -> Response:
        """A summary and the messages that it replaces."""
        session_id = request.path_params["session_id"]
        stash = await self._stash.get()
        summary = await stash.get_summary(session_id, level=request.path_params["summary_id"])
        covered = await stash.read_beside(session_id, first=summary.first_seq, limit=MESSAGES_SHOWN)
        messages = [message for message in covered.messages if message.seq <= summary.last_seq]
        return self._templates.page(request, "summary.html", summary=summary, messages=messages)

    async def search(self, request: Request) -> Response:
        """The search results for some words, in all sessions or in one."""
        query = request.query_params.get("q", "")
        session_id = request.query_params.get("session") or None
        filters = {name: request.query_params.get(name) or None for name in ("tool", "since", "until")}
        found = None
        if query.strip():
            stash = await self._stash.get()
            found = await stash.search_history(query, session_id=session_id, limit=MAX_HITS, **filters)
        return self._templates.page(
            request, "search.html", query=query, session_id=session_id, found=found, filters=filters
        )

    async def act(self, request: Request) -> Response:
        """Compact, prune or restore, and show the result."""
        form = await request.form()
        token = str(form.get("form_token", ""))
        if not hmac.compare_digest(token.encode(), self._templates.form_token.encode()):
            return PlainTextResponse(
                "This form is not from these pages, or the server was restarted since. Load the page again.", 403
            )
        session_id = request.path_params["session_id"]
        stash = await self._stash.get()
        outcome = await _run_action(stash, request.path_params["action"], session_id, str(form.get("handle", "")))
        back = str(form.get("back", ""))
        if back == "messages":
            first = str(form.get("first", "0"))
            address = f"{request.url.path.rsplit('/', 1)[0]}/messages?first={first if first.isdecimal() else 0}"
            return RedirectResponse(address, 303)
        return await self._session(request, session_id, outcome)

    async def _session(self, request: Request, session_id: str, outcome: str | None = None) -> Response:
        stash = await self._stash.get()
        status = await stash.context_status(session_id)
        timeline = await self._timeline(stash, session_id)
        return self._templates.page(
            request,
            "session.html",
            status=status,
            chart=chart_of(timeline) if timeline.points[-1].seq else None,
            width=WIDTH,
            height=HEIGHT,
            outcome=outcome,
            proxy_lines=report_lines(status.proxy) if status.proxy else [],
        )

    async def _timeline(self, stash: Stash, session_id: str) -> Timeline:
        """The session's timeline. Cached by the state of the session: a long session takes a moment to sum up."""
        session = await stash.read_session(session_id)
        key = (session_id, session.updated_at.isoformat() + session.counters.model_dump_json())
        if key not in self._timelines:
            self._timelines[key] = await stash.timeline(session_id)
            while len(self._timelines) > MAX_TIMELINES:
                self._timelines.popitem(last=False)
        return self._timelines[key]


async def _run_action(stash: Stash, action: str, session_id: str, handle: str) -> str:
    """Run an action and return its outcome in a sentence. Raises BadInputError if the action is unknown."""
    if action == "compact":
        compacted = await stash.compact_session(session_id)
        return _outcome(compacted.reason, compacted.tokens_before, compacted.tokens_after)
    if action == "prune":
        pruned = await stash.prune_tool_outputs(session_id)
        return _outcome(pruned.reason, pruned.tokens_before, pruned.tokens_after)
    if action == "restore":
        restored = await stash.restore_outputs([handle], session_id=session_id)
        return _outcome("Restored.", restored.tokens_before, restored.tokens_after)
    raise BadInputError(f"Unknown action '{action}': the actions are compact, prune and restore.")


def _outcome(reason: str, before: int, after: int) -> str:
    return reason if before == after else f"{reason} {before:,} → {after:,} tokens."


def _number(request: Request, name: str, default: int) -> int:
    given = request.query_params.get(name, "")
    return int(given) if given.isdecimal() and len(given) < 10 else default
