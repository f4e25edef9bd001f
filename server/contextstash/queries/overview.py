"""All sessions together, and what one session's tool outputs and model calls took."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from contextstash.configuration.windows_and_prices import price_of
from contextstash.record.output_archive import OUTPUTS_AGENT
from contextstash.results import CallList, CallUse, DayUse, ModelUse, Overview, SessionUse, ToolUse
from contextstash.session.access import Access
from contextstash_storage.records import Call, DaySum, Usage

SUMMED = ("calls", "prompt_tokens", "completion_tokens", "cached_tokens")
"""The figures of a day that are sums over the models."""

LAST_CALLS = 20
"""Calls of one session that are listed; `calls` has them all."""


async def overview(access: Access) -> Overview:
    """The totals, and the use by tool and day. Reads every session's row: call it once for many pages."""
    totals = await access.store.totals(without_agent=OUTPUTS_AGENT)
    days = _days(totals.days)
    costs = [day.cost for day in days if day.cost is not None]
    return Overview.of(
        totals,
        outputs=sum(tool.outputs for tool in totals.tools),
        output_tokens=sum(tool.tokens for tool in totals.tools),
        calls=sum(day.calls for day in days),
        prompt_tokens=sum(day.prompt_tokens for day in days),
        cost=sum(costs) if costs else None,
        unpriced_calls=sum(day.calls for day in totals.days if cost_of_calls(day) is None),
        days=days,
        models=_models(totals.days),
        tools=[ToolUse.of(each) for each in totals.tools],
    )


async def session_use(access: Access, session_id: str) -> SessionUse:
    """The tool outputs and model calls of one session. Raises SessionNotFoundError."""
    store = access.store
    return SessionUse(
        session_id=session_id,
        tools=[ToolUse.of(each) for each in await store.session_tools(session_id)],
        days=_days(await store.session_days(session_id)),
        calls=[CallUse.of(call, cost=cost_of(call)) for call in await store.last_calls(session_id, LAST_CALLS)],
    )


def _days(sums: Iterable[DaySum]) -> list[DayUse]:
    return [_day(day, list(found)) for day, found in groupby(sums, key=lambda each: each.day)]


def _models(sums: Iterable[DaySum]) -> list[ModelUse]:
    """The use by model, the most used first."""
    found: dict[str | None, ModelUse] = {}
    for each in sums:
        known = found.setdefault(each.model, ModelUse(model=each.model, calls=0, prompt_tokens=0))
        known.calls += each.calls
        known.prompt_tokens += each.prompt_tokens
        if (cost := cost_of_calls(each)) is not None:
            known.cost = (known.cost or 0) + cost
    return sorted(found.values(), key=lambda use: -use.prompt_tokens)


def _day(day: str, sums: Sequence[DaySum]) -> DayUse:
    """The calls of one day to all models."""
    costs = [cost for each in sums if (cost := cost_of_calls(each)) is not None]
    return DayUse(
        day=day,
        **{kind: sum(getattr(each, kind) for each in sums) for kind in SUMMED},
        cost=sum(costs) if costs else None,
    )


def cost_of_calls(calls: DaySum) -> float | None:
    """The cost of calls to one model, in US dollars. A call of average size is priced: the price of a model can depend
    on the size of a request, so that the sum of all would be too dear."""
    if calls.priced == calls.calls:
        return calls.cost
    kinds = (*SUMMED[1:], "cache_write_tokens", "cache_write_1h_tokens")
    average = Usage(**{kind: round(getattr(calls, kind) / calls.calls) for kind in kinds})
    price = price_of(calls.model, average)
    return None if price is None else price * calls.calls


async def list_calls(access: Access, session_id: str, *, after: int = 0, limit: int = 100) -> CallList:
    """A session's calls, oldest first, with the growth of each request of the agent."""
    await access.read_session(session_id)
    calls = await access.store.read_calls(session_id, after=after, limit=limit)
    lines: list[CallUse] = []
    before: int | None = None
    for call in calls:
        is_agent = call.purpose == "agent"
        growth = call.prompt_tokens - before if is_agent and before is not None else None
        before = call.prompt_tokens if is_agent else before
        lines.append(CallUse.of(call, cost=cost_of(call), growth_tokens=growth))
    return CallList(session_id=session_id, calls=lines, next_call=calls[-1].call_id if len(calls) == limit else None)


def usage_of(call: Call) -> Usage:
    """The usage that was reported for a call."""
    return Usage(**{name: getattr(call, name) for name in Usage.model_fields})


def cost_of(call: Call) -> float | None:
    """The cost of a model call in US dollars; if it was not recorded, the list price, if that is known."""
    return call.cost if call.cost is not None else price_of(call.model, usage_of(call))
