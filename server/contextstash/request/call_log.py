"""The log of model calls: tokens, cost and growth of each request."""

from __future__ import annotations

from contextstash.configuration.windows_and_prices import price_of
from contextstash.results import CallList, CallUse
from contextstash.session.access import Access
from contextstash_storage.records import Call, Usage


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
