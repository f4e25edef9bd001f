"""All sessions together, and what one session's tool outputs and model calls took."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from itertools import groupby

from contextstash.configuration.models import price_of
from contextstash.service.queries.proxy_report import report_of_all
from contextstash.service.queries.savings import savings_of
from contextstash.service.queries.sessions import session_line
from contextstash.service.recording.output_archive import OUTPUTS_AGENT
from contextstash.service.requests.call_log import call_use
from contextstash.service.results import DayUse, Overview, Savings, SessionLine, SessionUse, ToolUse
from contextstash.service.session_access import Access
from contextstash_storage.records import DaySum, Session, ToolSum, Usage

BUSIEST = 5
"""Sessions that an overview names."""

LAST_CALLS = 20
"""Calls of one session that are listed; `calls` has them all."""

READ_AT_ONCE = 200

MAX_PROXIED = 10_000
"""Sessions of the proxy that are summed: more than a person has."""


async def overview(access: Access) -> Overview:
    """The totals, what was saved, the busiest sessions, and the use by tool and day. Reads every session's row: call it
    once for many pages."""
    totals = await access.store.totals(without_agent=OUTPUTS_AGENT)
    proxied = dict(await access.store.recent_proxied(0, MAX_PROXIED))
    savings: list[Savings] = []
    busiest: list[Session] = []
    async for session in _all_sessions(access):
        # What the proxy saved is in its own report.
        is_ours = session.source is None and session.counters.own and session.session_id not in proxied
        if is_ours and (found := await savings_of(access, session)):
            savings.append(found)
        busiest = sorted([*busiest, session], key=lambda each: -each.counters.appended)[:BUSIEST]
    days = _days(totals.days)
    costs = [day.cost for day in days if day.cost is not None]
    return Overview(
        sessions=totals.sessions,
        messages=totals.messages,
        tokens=totals.tokens,
        outputs=sum(tool.outputs for tool in totals.tools),
        output_tokens=sum(tool.tokens for tool in totals.tools),
        calls=sum(day.calls for day in days),
        prompt_tokens=sum(day.prompt_tokens for day in days),
        cost=sum(costs) if costs else None,
        unpriced_calls=sum(day.calls for day in totals.days if cost_of_calls(day) is None),
        savings=_together(savings),
        proxy=report_of_all(proxied.values()) if proxied else None,
        days=days,
        tools=_tools(totals.tools),
        busiest=[await _line(access, session) for session in busiest],
    )


async def _all_sessions(access: Access) -> AsyncIterator[Session]:
    before = None
    while True:
        page = await access.store.list_sessions(limit=READ_AT_ONCE, before=before, without_agent=OUTPUTS_AGENT)
        for session in page:
            yield session
        if len(page) < READ_AT_ONCE:
            return
        before = page[-1].session_id


async def _line(access: Access, session: Session) -> SessionLine:
    """The line of the session, `tokens` being those of its whole history."""
    line = await session_line(access, session)
    return line.model_copy(update={"tokens": session.counters.appended})


def _together(savings: Sequence[Savings]) -> Savings | None:
    if not savings:
        return None
    costs = [each.cost for each in savings if each.cost is not None]
    return Savings(
        tokens_now=sum(each.tokens_now for each in savings),
        requests=sum(each.requests for each in savings),
        tokens=sum(each.tokens for each in savings),
        cost=sum(costs) if costs else None,
    )


async def session_use(access: Access, session_id: str) -> SessionUse:
    """The tool outputs and model calls of one session. Raises SessionNotFoundError."""
    store = access.store
    return SessionUse(
        session_id=session_id,
        tools=_tools(await store.session_tools(session_id)),
        days=_days(await store.session_days(session_id)),
        calls=[call_use(call) for call in await store.last_calls(session_id, LAST_CALLS)],
    )


def _tools(sums: Iterable[ToolSum]) -> list[ToolUse]:
    return [ToolUse(tool=each.tool, outputs=each.outputs, tokens=each.tokens) for each in sums]


def _days(sums: Iterable[DaySum]) -> list[DayUse]:
    return [_day(day, list(found)) for day, found in groupby(sums, key=lambda each: each.day)]


def _day(day: str, sums: Sequence[DaySum]) -> DayUse:
    """The calls of one day to all models."""
    costs = [cost for each in sums if (cost := cost_of_calls(each)) is not None]
    return DayUse(
        day=day,
        calls=sum(each.calls for each in sums),
        prompt_tokens=sum(each.prompt_tokens for each in sums),
        completion_tokens=sum(each.completion_tokens for each in sums),
        cached_tokens=sum(each.cached_tokens for each in sums),
        cost=sum(costs) if costs else None,
    )


def cost_of_calls(calls: DaySum) -> float | None:
    """The cost of calls to one model, in US dollars. A call of average size is priced: the price of a model can depend
    on the size of a request, so that the sum of all would be too dear."""
    if calls.priced == calls.calls:
        return calls.cost
    average = Usage(
        prompt_tokens=calls.prompt_tokens // calls.calls,
        completion_tokens=calls.completion_tokens // calls.calls,
        cached_tokens=calls.cached_tokens // calls.calls,
        cache_write_tokens=calls.cache_write_tokens // calls.calls,
    )
    price = price_of(calls.model, average)
    return None if price is None else price * calls.calls
