"""What sessions cost, by day and by model, and the receipt of what contextstash saved of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, date, datetime, time, timedelta

from contextstash.messages.base import with_cache
from contextstash.queries.sessions import SHRINKING, all_sessions, pages_of_sessions
from contextstash.record.output_archive import OUTPUTS_AGENT, kept_outputs
from contextstash.record.transcripts import COMPACTED
from contextstash.request.proxied import SUMMED
from contextstash.results import CallSum, Overview, Receipt
from contextstash.session.access import Access
from contextstash.window.models import price_of
from contextstash_storage.records import Call, Event, ProxiedSession, ProxiedTotals, Session, Usage

MAX_EVENTS = 10_000
MAX_CALLS = 100_000

PAUSE = timedelta(minutes=5)
"""How long providers keep a prompt in their cache: what a call after a longer pause writes
again was not caused by an edit."""

METHOD = (
    "Billed: the usage that the provider reported, at list prices. Without contextstash: the same requests with what"
    " was left out of them, counted from its text, scaled by the reported usage and never above the model's window;"
    " without contextstash's tools and hand-offs, and what its tools fetched. What the model read again by its own"
    " tools is not deducted. What hooks and gateways shorten of new outputs is not in the"
    " dollars."
)

Figures = dict[str, float]
"""Sums of a session: sessions, unchanged, requests, unpriced, tokens, tokens_without; and in US dollars billed and
without, with `priced`, if a price is known."""


async def overview(access: Access) -> Overview:
    """The model calls of all sessions by day, and by model, the most used first."""
    days: dict[str | None, CallSum] = {}
    models: dict[str | None, CallSum] = {}
    async for session in _chosen(access, None, None):
        for call in await access.store.read_log(session.session_id, Call, limit=MAX_CALLS):
            if call.purpose == "agent" and call.created_at is not None:
                _add(days, call.created_at.date().isoformat(), call)
                _add(models, call.model, call)
    return Overview(
        days=[days[day] for day in sorted(days, key=str)],
        models=sorted(models.values(), key=lambda each: -each.prompt_tokens),
    )


def _add(sums: dict[str | None, CallSum], name: str | None, call: Call) -> None:
    known = sums.setdefault(name, CallSum(name=name, calls=0, prompt_tokens=0))
    known.calls += 1
    known.prompt_tokens += call.prompt_tokens
    if (cost := _cost(call)) is not None:
        known.cost = (known.cost or 0) + cost


def _cost(call: Call) -> float | None:
    """The cost of a call: as it was recorded, else by the list price; None if that is not known."""
    return price_of(call.model, call) if call.cost is None else call.cost


# The receipt.


async def receipt(access: Access, session_id: str | None = None, since: date | None = None) -> Receipt:
    """The receipt of a session with its sub-agents, or of all sessions, as far as they were used since a day (UTC).
    Raises SessionNotFoundError."""
    total: dict[str, float] = defaultdict(float)
    async for session in _chosen(access, session_id, since):
        calls = await access.store.read_log(session.session_id, Call, limit=MAX_CALLS)
        if since is not None:
            calls = [call for call in calls if call.created_at is not None and call.created_at.date() >= since]
        proxied = await access.proxied(session.session_id)
        if proxied is not None:
            figures = _of_requests(proxied, calls, since)
        else:
            figures = await _of_calls(access, session, calls)
        for name, figure in figures.items():
            total[name] += figure
    dollars = {"billed": total["billed"], "without": total["without"], "saved": total["without"] - total["billed"]}
    return Receipt(
        since=since.isoformat() if since else None,
        sessions=int(total["sessions"]),
        unchanged_sessions=int(total["unchanged"]),
        requests=int(total["requests"]),
        unpriced_requests=int(total["unpriced"]),
        tokens_billed=int(total["tokens"]),
        tokens_without=int(total["tokens_without"]),
        method=METHOD,
        **{f"dollars_{name}": round(sum_, 4) for name, sum_ in dollars.items() if total["priced"]},
    )


async def _chosen(access: Access, session_id: str | None, since: date | None) -> AsyncIterator[Session]:
    """A session and those that it has started, at any depth; or all that were used since a day."""
    if session_id is not None:
        waiting, seen = [await access.read_session(session_id)], {session_id}
        while waiting:
            yield (current := waiting.pop())
            children = await all_sessions(access, parent=current.session_id)
            waiting += [child for child in children if child.session_id not in seen]
            seen |= {child.session_id for child in children}
        return
    async for page in pages_of_sessions(access, without_agent=OUTPUTS_AGENT, by_message=True):
        for session in page:
            yield session
        if since is not None and page[-1].updated_at.date() < since:
            return


async def _of_calls(access: Access, session: Session, calls: Sequence[Call]) -> Figures:
    """A session that does not go through the proxy, by the calls that it reported."""
    agent = [call for call in calls if call.purpose == "agent"]
    if not agent:
        return {}
    events: list[Event] = []
    if session.source is None:  # else the client sends its own history, which our edits do not change
        found = await access.store.read_log(session.session_id, Event, keys=SHRINKING, newest=True, limit=MAX_EVENTS)
        events = [event for event in reversed(found) if event.strategy not in COMPACTED]
    saved, gained = _effect(events, agent)
    spent = 0.0 if session.source is not None else _spent(calls)
    known = [cost for cost in map(_cost, agent) if cost is not None]
    tokens = sum(call.prompt_tokens for call in agent)
    figures: Figures = {
        "sessions": 1,
        "unchanged": not (saved or gained or spent or await kept_outputs(access, session.session_id)),
        "requests": len(agent),
        "unpriced": len(agent) - len(known),
        "tokens": tokens,
        "tokens_without": tokens + saved,
    }
    if known:
        figures |= {"priced": 1, "billed": sum(known) + spent, "without": sum(known) + gained}
    return figures


def _of_requests(proxied: ProxiedSession, calls: Sequence[Call], since: date | None) -> Figures:
    """A session that goes through the proxy, by what the proxy counted since a day began."""
    before = ProxiedTotals()
    if since is not None:
        days = [totals for day, totals in sorted(proxied.days.items()) if day >= since.isoformat()]
        is_older = bool(proxied.days) or proxied.last_at < datetime.combine(since, time(), UTC).timestamp()
        before = days[0] if days else proxied if is_older else before
    state = ProxiedTotals(**{name: getattr(proxied, name) - getattr(before, name) for name in SUMMED})
    if not state.requests and not state.sent:
        return {}
    figures: Figures = {
        "sessions": 1,
        "requests": state.requests,
        "unpriced": max(0, state.requests - state.priced),
        "tokens": state.sent,
        "tokens_without": state.direct,
    }
    if state.priced:
        figures |= {"priced": 1, "billed": state.dollars_paid + _spent(calls), "without": state.dollars_direct}
    return figures


def _spent(calls: Sequence[Call]) -> float:
    """What summaries by a model cost."""
    return sum(call.cost or 0.0 for call in calls if call.purpose != "agent")


def _effect(events: Sequence[Event], calls: Sequence[Call]) -> tuple[int, float]:
    """The tokens that our edits kept out of the agent's prompts, and the dollars: at the price of cached tokens, the
    least that they would have cost. What they made the provider write again is deducted."""
    tokens, dollars, gone = 0, 0.0, 0
    waiting, before = list(events), None
    for call in calls:
        new = [event for event in waiting if event.seq <= call.request_seq + 1]
        waiting = waiting[len(new) :]
        removed = sum(event.tokens_before - event.tokens_after for event in new)
        gone += removed
        saved = max(0, gone)
        again = _written_again(before, call, removed) if new and before is not None else 0
        kept = with_cache(call, call.cached_tokens + again, max(0, call.cache_write_tokens - again))
        paid, usual = price_of(call.model, call), price_of(call.model, kept)
        tokens += saved - again
        dollars += price_of(call.model, Usage(prompt_tokens=saved, cached_tokens=saved)) or 0.0
        dollars -= max(0.0, paid - usual) if paid is not None and usual is not None else 0.0
        before = call
    return tokens, dollars


def _written_again(before: Call, call: Call, removed: int) -> int:
    """The tokens that were not read from a warm cache though the request before held them, because an event between
    them, which removed so many tokens, had changed what stands in front of them."""
    pause = call.created_at - before.created_at if call.created_at and before.created_at else PAUSE
    if pause > PAUSE or not before.cached_tokens + before.cache_write_tokens:
        return 0
    fresh = max(0, call.prompt_tokens + removed - before.prompt_tokens)
    return max(0, call.prompt_tokens - call.cached_tokens - fresh)
