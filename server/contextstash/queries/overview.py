"""Model calls: of all sessions together, and those of one."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from contextstash.record.output_archive import OUTPUTS_AGENT
from contextstash.results import CallList, CallSum, Overview
from contextstash.session.access import Access
from contextstash.window.models import price_of
from contextstash_storage.records import Call, DaySum, Usage

SUMMED = ("prompt_tokens", "completion_tokens", "cached_tokens", "cache_write_tokens", "cache_write_1h_tokens")


async def overview(access: Access) -> Overview:
    """The model calls of all sessions by day, and by model, the most used first."""
    sums = await access.store.call_days(without_agent=OUTPUTS_AGENT)
    models = _summed(sums, lambda each: each.model)
    return Overview(
        days=_summed(sums, lambda each: each.day), models=sorted(models, key=lambda each: -each.prompt_tokens)
    )


def _summed(sums: Iterable[DaySum], name_of: Callable[[DaySum], str | None]) -> list[CallSum]:
    found: dict[str | None, CallSum] = {}
    for each in sums:
        name = name_of(each)
        known = found.setdefault(name, CallSum(name=name, calls=0, prompt_tokens=0))
        known.calls += each.calls
        known.prompt_tokens += each.prompt_tokens
        if (cost := cost_of_calls(each)) is not None:
            known.cost = (known.cost or 0) + cost
    return list(found.values())


def cost_of_calls(calls: DaySum) -> float | None:
    """The cost of calls to one model, in US dollars. A call of average size is priced: the price of a model can depend
    on the size of a request, so that the sum of all would be too dear."""
    if calls.priced == calls.calls:
        return calls.cost
    average = Usage(**{kind: round(getattr(calls, kind) / calls.calls) for kind in SUMMED})
    price = price_of(calls.model, average)
    return None if price is None else price * calls.calls


async def list_calls(access: Access, session_id: str, *, after: int = 0, limit: int = 100) -> CallList:
    """A session's calls, oldest first, each with its cost if the price is known."""
    await access.read_session(session_id)
    calls = await access.store.read_log(session_id, Call, after=after, limit=limit)
    return CallList(session_id=session_id, calls=[_with_cost(call) for call in calls])


def _with_cost(call: Call) -> Call:
    """A call whose cost was not recorded with its list price, if that is known."""
    cost = call.cost if call.cost is not None else price_of(call.model, call)
    return call.model_copy(update={"cost": cost})
