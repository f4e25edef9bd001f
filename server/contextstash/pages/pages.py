"""The handlers of the pages and of their buttons."""

from __future__ import annotations

import hmac
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from contextstash.base.bounded_cache import BoundedCache
from contextstash.display.long_texts import MAX_WHOLE, cut
from contextstash.pages.background_values import Computed
from contextstash.pages.chart import HEIGHT, WIDTH, chart_of, columns_of
from contextstash.pages.guard import new_token
from contextstash.pages.session_rows import SORTS, SessionRows, Wanted, short_ids
from contextstash.results import Timeline, WindowAdvice
from contextstash_storage.errors import BadInputError, NotFoundError

if TYPE_CHECKING:
    from contextstash.pages.templates import Templates
    from contextstash.stash import Stash
    from contextstash_storage.records import Session


SESSIONS_SHOWN = 25
MAX_MATCHING = 200
MESSAGES_SHOWN = 100
OUTPUT_TOKENS = 8_000
"""Tokens of an output on one page. Like the numbers above it bounds a page; the rest is on the next one."""

ADVISED_SESSIONS = 100
"""The newest sessions whose calls are replayed in smaller windows: as many as `contextstash advise` takes."""

VIEWS = ("outline", "full")
"""How messages are listed: one line each, or whole."""

MAX_TIMELINES = 32
"""Timelines in memory, one for each open session; others are computed again."""

MAX_HITS = 50
"""Of a search: the maximum of the service."""

OUTPUTS_KEPT = 5
"""How many of the newest outputs the pages' button keeps: fewer than the settings keep, so that the button has an
effect."""

MAX_OUTCOMES = 64
"""Outcomes of actions in memory, each until its page was looked at: far more than one person waits for."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of an action, in a sentence, and the handles that undo it."""

    text: str
    handles: tuple[str, ...] = ()
    summary_id: str | None = None


class Pages:
    """The handlers of all pages."""

    def __init__(self, open_stash: Callable[[], Awaitable[Stash]], templates: Templates) -> None:
        self._stash = open_stash
        self._templates = templates
        self._timelines: BoundedCache[tuple[str, str], Timeline] = BoundedCache(MAX_TIMELINES)
        self._rows = SessionRows()
        self._overview = Computed("the overview", lambda opened: opened.overview())
        self._receipt = Computed("the receipt", lambda opened: opened.receipt())
        self._advice = Computed("the comparison of windows", _advice)
        self._outcomes: BoundedCache[str, Outcome] = BoundedCache(MAX_OUTCOMES)

    async def sessions(self, request: Request) -> Response:
        """The overview and the sessions, the one with the newest message first; or those that a filter keeps."""
        stash = await self._stash()
        mark = await stash.mark()
        wanted = _wanted(request)
        cursor = request.query_params.get("after")
        overview = None if wanted.is_filtered or cursor else await self._overview.get(stash, mark)
        if wanted.is_filtered:
            rows, next_cursor = await self._rows.matching(stash, wanted, MAX_MATCHING), None
        else:
            rows, next_cursor = await self._rows.page(stash, SESSIONS_SHOWN, cursor)
        return self._templates.page(
            request,
            "sessions.html",
            mark=mark,
            overview=overview,
            rows=rows,
            ids=short_ids([row.line.session_id for row in rows]),
            next_cursor=next_cursor,
            wanted=wanted,
            sorts=SORTS,
            projects=self._rows.projects(stash, mark),
        )

    async def costs(self, request: Request) -> Response:
        """The tokens sent and saved, by day and tool, and the costs of smaller windows."""
        stash = await self._stash()
        mark = await stash.mark()
        overview = await self._overview.get(stash, mark)
        return self._templates.page(
            request,
            "costs.html",
            mark=mark,
            overview=overview,
            receipt=await self._receipt.get(stash, mark),
            days=columns_of(overview.days, datetime.now(UTC).date()),
            advice=self._advice.known(stash, str(overview.sessions)),  # to replay at each new call would be too much
        )

    async def mark(self, request: Request) -> Response:
        """A mark that differs after any change: a page that sees another mark than its own loads itself again."""
        return PlainTextResponse(await (await self._stash()).mark())

    async def session(self, request: Request) -> Response:
        """One session: how full its window is, now and over time, and its changes."""
        session_id = request.path_params["session_id"]
        stash = await self._stash()
        mark = await stash.mark()
        status = await stash.context_status(session_id)
        session = await stash.read_session(session_id)
        timeline = await self._timeline(stash, session)
        row = await self._rows.row(stash, session)
        use = await stash.session_use(session_id)
        costs = [day.cost for day in use.days if day.cost is not None]
        return self._templates.page(
            request,
            "session.html",
            mark=mark,
            status=status,
            row=row,
            use=use,
            receipt=await stash.receipt(session_id),
            calls=sum(day.calls for day in use.days),
            sent=sum(day.prompt_tokens for day in use.days),
            cached=sum(day.cached_tokens for day in use.days),
            cost=sum(costs) if costs else None,
            chart=chart_of(timeline) if timeline.points[-1].seq else None,
            width=WIDTH,
            height=HEIGHT,
            outcome=self._outcomes.get(request.query_params.get("done", "")),
            outputs_kept=OUTPUTS_KEPT,
        )

    async def messages(self, request: Request) -> Response:
        """A range of the history, with what the model sees of it."""
        session_id = request.path_params["session_id"]
        stash = await self._stash()
        mark = await stash.mark()
        session = await stash.read_session(session_id)
        total = session.counters.messages
        first = _number(request, "first", max(0, total - MESSAGES_SHOWN))
        first = max(0, min(first, total - 1))
        page = await stash.read_shown_messages(session_id, first=first, limit=MESSAGES_SHOWN)
        shown = {summary.summary_id: summary for summary in page.summaries}
        view = request.query_params.get("view", "")
        return self._templates.page(
            request,
            "messages.html",
            mark=mark,
            title=(await self._rows.row(stash, session)).title,
            view=view if view in VIEWS else VIEWS[0],
            page=page,
            summaries=shown,
            earlier=max(0, first - MESSAGES_SHOWN) if first else None,
            last=max(0, total - MESSAGES_SHOWN),
        )

    async def message(self, request: Request) -> Response:
        """One whole message, as recorded."""
        session_id, seq = request.path_params["session_id"], request.path_params["seq"]
        stash = await self._stash()
        total = (await stash.read_session(session_id)).counters.messages
        if seq >= total:  # asked before the database is, which has no numbers as long as an address can be
            raise NotFoundError(f"Session {session_id} has no message {seq}: it has {total:,}.")
        page = await stash.read_shown_messages(session_id, first=seq, limit=1)
        [recorded] = (await stash.read_messages(session_id, first=seq, limit=1)).messages
        native = cut(json.dumps(recorded.message, ensure_ascii=False, indent=2), MAX_WHOLE)
        title = (await self._rows.row(stash, await stash.read_session(session_id))).title
        return self._templates.page(
            request, "message.html", page=page, message=page.messages[0], native=native, title=title
        )

    async def output(self, request: Request) -> Response:
        """A page of an archived output."""
        stash = await self._stash()
        session_id = request.query_params.get("session")
        page = await stash.get_archived_output(
            request.path_params["handle"],
            session_id=session_id,
            offset=_number(request, "offset", 1),
            pattern=request.query_params.get("pattern") or None,
            max_tokens=OUTPUT_TOKENS,
            masked=True,
        )
        return self._templates.page(
            request,
            "output.html",
            page=page,
            call=await stash.read_call(request.path_params["handle"], session_id=session_id),
            session_id=session_id,
            pattern=request.query_params.get("pattern", ""),
        )

    async def summary(self, request: Request) -> Response:
        """A summary and the messages that it replaces."""
        session_id = request.path_params["session_id"]
        stash = await self._stash()
        summary = await stash.get_summary(session_id, level=request.path_params["summary_id"])
        covered = await stash.read_shown_messages(session_id, first=summary.first_seq, limit=MESSAGES_SHOWN)
        messages = [message for message in covered.messages if message.seq <= summary.last_seq]
        return self._templates.page(request, "summary.html", summary=summary, messages=messages)

    async def search(self, request: Request) -> Response:
        """The search results for some words, in all sessions or in one."""
        query = request.query_params.get("q", "")
        session_id = request.query_params.get("session") or None
        project = request.query_params.get("project") or None
        filters = {name: request.query_params.get(name) or None for name in ("tool", "since", "until")}
        stash = await self._stash()
        found, rows = None, []
        if query.strip():
            scope = "project" if project else None
            found = await stash.search_history(
                query,
                session_id=session_id,
                scope=scope,
                project=project,
                limit=MAX_HITS,
                unseen_first=False,
                line_breaks=True,
                **filters,
            )
            hit_ids = {hit.session_id for hit in found.hits}
            rows = await self._rows.rows(stash, [await stash.read_session(each) for each in hit_ids])
        mark = await stash.mark()
        overview = await self._overview.get(stash, mark)
        return self._templates.page(
            request,
            "search.html",
            query=query,
            session_id=session_id,
            project=project,
            projects=self._rows.projects(stash, mark),
            tools=[tool.tool for tool in overview.tools],
            found=found,
            most=MAX_HITS,
            sessions={row.line.session_id: row for row in rows},
            ids=short_ids([row.line.session_id for row in rows]),
            filters=filters,
        )

    async def act(self, request: Request) -> Response:
        """Compact, prune or restore; the session's page then shows the outcome."""
        form = await request.form()
        token = str(form.get("form_token", ""))
        if not hmac.compare_digest(token.encode(), self._templates.form_token.encode()):
            return PlainTextResponse(
                "This form is not from these pages, or the server was restarted since. Load the page again.", 403
            )
        session_id = request.path_params["session_id"]
        stash = await self._stash()
        outcome = await _run_action(
            stash, request.path_params["action"], session_id, str(form.get("handle", "")).split()
        )
        if (back := str(form.get("back", ""))).isdecimal():
            return RedirectResponse(self._templates.message_link(session_id, int(back)), 303)
        # The session's page shows the outcome: to load that page again repeats no action.
        key = new_token()
        self._outcomes.set(key, outcome)
        return RedirectResponse(f"{request.url.path.rsplit('/', 1)[0]}?done={key}", 303)

    async def _timeline(self, stash: Stash, session: Session) -> Timeline:
        """The session's timeline. Cached by the state of the session: a long session takes a moment to sum up."""
        key = (session.session_id, session.updated_at.isoformat() + session.counters.model_dump_json())
        return self._timelines.get(key) or self._timelines.set(key, await stash.timeline(session.session_id))


async def _advice(stash: Stash) -> WindowAdvice:
    return await stash.advise(await stash.recent_sessions(limit=ADVISED_SESSIONS))


def _wanted(request: Request) -> Wanted:
    """The sessions that a page's query asks for; an unknown order is the usual one."""
    given = {name: request.query_params.get(name, "").strip() or None for name in ("project", "text")}
    sort = request.query_params.get("sort", "time")
    return Wanted(**given, sort=sort if sort in SORTS else "time")


async def _run_action(stash: Stash, action: str, session_id: str, handles: Sequence[str]) -> Outcome:
    """Run an action and return its outcome. Raises BadInputError if the action is unknown."""
    if action == "compact":
        compacted = await stash.compact_session(session_id)
        text = _sentence(compacted.reason, compacted.tokens_before, compacted.tokens_after)
        return Outcome(text, (compacted.summary_id,) if compacted.summary_id else (), compacted.summary_id)
    if action == "prune":
        pruned = await stash.prune_tool_outputs(session_id, keep_last=OUTPUTS_KEPT)
        text = _sentence(pruned.reason, pruned.tokens_before, pruned.tokens_after)
        return Outcome(text, () if pruned.more else tuple(output.handle for output in pruned.archived))
    if action == "restore":
        restored = await stash.restore_outputs(handles, session_id=session_id)
        return Outcome(_sentence("Restored.", restored.tokens_before, restored.tokens_after))
    raise BadInputError(f"Unknown action '{action}': the actions are compact, prune and restore.")


def _sentence(reason: str, before: int, after: int) -> str:
    return reason if before == after else f"{reason} {before:,} → {after:,} tokens in contextstash's view."


def _number(request: Request, name: str, default: int) -> int:
    given = request.query_params.get(name, "")
    return int(given) if given.isdecimal() and len(given) < 10 else default
