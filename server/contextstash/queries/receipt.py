"""The receipt: what the provider billed, and what it would have without contextstash; and the report of proxied
sessions: what was sent, and what was saved net of its cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, date, datetime, time, timedelta

from contextstash.messages.base import with_cache
from contextstash.queries.overview import cost_of_calls
from contextstash.queries.sessions import all_sessions, pages_of_sessions
from contextstash.record.output_archive import OUTPUTS_AGENT, kept_outputs
from contextstash.record.transcripts import OF_CLIENTS_WINDOW
from contextstash.results import ProxyReport, Receipt
from contextstash.session.access import Access
from contextstash.window.models import price_of
from contextstash_storage.records import Call, Event, EventKind, ProxiedSession, ProxiedTotals, Session, Usage

SUMMED = tuple(ProxiedTotals.model_fields)


def report_of(*states: ProxiedSession) -> ProxyReport:
    """The totals of sessions together."""
    total = ProxiedTotals(**{name: sum(getattr(state, name) for state in states) for name in SUMMED})
    return ProxyReport.of(
        total,
        tokens_sent=total.sent,
        tokens_unedited=total.direct,
        dollars_paid=round(total.dollars_paid, 4) if total.priced else None,
        dollars_saved=round(total.dollars_direct - total.dollars_paid, 4) if total.priced else None,
        unread=total.unread or None,
        left_alone=next((state.left_alone for state in states if state.left_alone), None),
    )


def state_since(state: ProxiedSession, before: ProxiedSession | None) -> ProxiedSession:
    """The state, whose totals count only what came after an earlier state of the same session."""
    if before is None:
        return state
    return state.model_copy(update={name: getattr(state, name) - getattr(before, name) for name in SUMMED})


SHRINKING: tuple[EventKind, ...] = ("prune", "compaction", "restore", "recovery")

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


async def receipt(access: Access, session_id: str | None = None, since: date | None = None) -> Receipt:
    """The receipt of a session with its sub-agents, or of all sessions, as far as they were used since a day (UTC).
    Raises SessionNotFoundError."""
    total: dict[str, float] = defaultdict(float)
    found = _all(access, since) if session_id is None else _family(access, await access.read_session(session_id))
    async for session in found:
        proxied = await access.proxied(session.session_id)
        if proxied is None:
            figures = await _of_calls(access, session, since)
        else:
            figures = await _of_requests(access, session, state_since(proxied, _at(proxied, since)), since)
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


async def _of_calls(access: Access, session: Session, since: date | None) -> Figures:
    """A session that does not go through the proxy, by the calls that it reported."""
    days = [each for each in await access.store.call_days(session_id=session.session_id) if _in(each.day, since)]
    if not days:
        return {}
    calls = _since(await access.store.read_log(session.session_id, Call, limit=MAX_CALLS), since)
    saved, gained = _effect(await _edits_of(access, session), calls)
    spent = 0.0 if session.source is not None else _spent(calls)
    costs = [cost_of_calls(day) for day in days]
    known = [cost for cost in costs if cost is not None]
    tokens = sum(day.prompt_tokens for day in days)
    figures: Figures = {
        "sessions": 1,
        "unchanged": not (saved or gained or spent or await kept_outputs(access, session.session_id)),
        "requests": sum(day.calls for day in days),
        "unpriced": sum(day.calls for cost, day in zip(costs, days, strict=True) if cost is None),
        "tokens": tokens,
        "tokens_without": tokens + saved,
    }
    if known:
        figures |= {"priced": 1, "billed": sum(known) + spent, "without": sum(known) + gained}
    return figures


async def _of_requests(access: Access, session: Session, state: ProxiedSession, since: date | None) -> Figures:
    """A session that goes through the proxy, by what the proxy counted."""
    if not state.requests and not state.sent:
        return {}
    calls = await access.store.read_log(session.session_id, Call, limit=MAX_CALLS)
    figures: Figures = {
        "sessions": 1,
        "requests": state.requests,
        "unpriced": max(0, state.requests - state.priced),
        "tokens": state.sent,
        "tokens_without": state.direct,
    }
    if state.priced:
        billed = state.dollars_paid + _spent(_since(calls, since))
        figures |= {"priced": 1, "billed": billed, "without": state.dollars_direct}
    return figures


def _spent(calls: Sequence[Call]) -> float:
    """What summaries by a model cost."""
    return sum(call.cost or 0.0 for call in calls if call.purpose != "agent")


def _at(state: ProxiedSession, since: date | None) -> ProxiedSession | None:
    """The totals of a session when a day began; None if all of it came later."""
    if since is None:
        return None
    totals = next((totals for day, totals in sorted(state.days.items()) if _in(day, since)), None)
    if totals is not None:
        return ProxiedSession(**totals.model_dump())
    return state if state.days or state.last_at < datetime.combine(since, time(), UTC).timestamp() else None


def _in(day: str, since: date | None) -> bool:
    return since is None or day >= since.isoformat()


def _since(calls: Sequence[Call], since: date | None) -> list[Call]:
    return [
        call for call in calls if since is None or (call.created_at is not None and call.created_at.date() >= since)
    ]


async def _all(access: Access, since: date | None) -> AsyncIterator[Session]:
    async for page in pages_of_sessions(access, without_agent=OUTPUTS_AGENT, by_message=True):
        for session in page:
            yield session
        if not _in(page[-1].updated_at.date().isoformat(), since):
            return


async def _family(access: Access, session: Session) -> AsyncIterator[Session]:
    """The session and those that it has started, at any depth."""
    waiting, seen = [session], {session.session_id}
    while waiting:
        current = waiting.pop()
        yield current
        children = await all_sessions(access, parent=current.session_id)
        waiting += [child for child in children if child.session_id not in seen]
        seen |= {child.session_id for child in children}


# The effect of our edits on a session that does not go through the proxy.


async def _edits_of(access: Access, session: Session) -> list[Event]:
    """The events of our edits, in order; none if the client sends its own history."""
    if session.source is not None:
        return []
    events = await access.store.read_log(session.session_id, Event, keys=SHRINKING, newest=True, limit=MAX_EVENTS)
    return [event for event in reversed(events) if event.strategy not in OF_CLIENTS_WINDOW]


def _effect(events: Sequence[Event], calls: Sequence[Call]) -> tuple[int, float]:
    """The tokens that our edits kept out of the agent's prompts, and the dollars: at the price of cached tokens, the
    least that they would have cost. What they made the provider write again is deducted."""
    tokens, dollars, gone = 0, 0.0, 0
    waiting, before = list(events), None
    for call in (each for each in calls if each.purpose == "agent"):
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
