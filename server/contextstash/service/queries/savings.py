"""Savings: the tokens and cost that prunes and compactions kept out of later requests."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from contextstash.configuration.models import price_of
from contextstash.service.results import Savings
from contextstash.service.session_access import Access
from contextstash_storage.records import Call, Event, EventKind, Session, Usage

SHRINKING: tuple[EventKind, ...] = ("prune", "compaction", "restore", "recovery")

MAX_EVENTS = 10_000
MAX_CALLS = 100_000


async def savings_of(access: Access, session: Session) -> Savings | None:
    """What was saved in a session; None if nothing was, or if the client sends its own history, which our edits do not
    change. Each request was smaller by the tokens that earlier events had removed from the view."""
    now = -sum(session.counters.own.values())
    if session.source is not None or now <= 0:
        return None
    name = session.session_id
    events = await access.store.last_events(name, SHRINKING, MAX_EVENTS)
    calls = await access.store.read_calls(name, limit=MAX_CALLS)
    by_model, requests = _saved(events[::-1], [call for call in calls if call.purpose == "agent"])
    return Savings(
        tokens_now=now,
        requests=requests,
        tokens=sum(by_model.values()),
        cost=_cost(by_model, calls),
    )


def _saved(events: Sequence[Event], calls: Sequence[Call]) -> tuple[dict[str | None, int], int]:
    """The tokens kept out of the requests, by model, and the number of requests that were smaller."""
    seqs = [event.seq for event in events]
    gone = list(accumulate(event.tokens_before - event.tokens_after for event in events))
    saved: dict[str | None, int] = {}
    requests = 0
    for call in calls:
        place = bisect_right(seqs, call.request_seq + 1)
        tokens = max(0, gone[place - 1]) if place else 0
        if tokens:
            requests += 1
            saved[call.model] = saved.get(call.model, 0) + tokens
    return saved, requests


def _cost(by_model: dict[str | None, int], calls: Sequence[Call]) -> float | None:
    """The least that the saved tokens would have cost, at the price of cached tokens, minus the cost of summaries and
    digests."""
    prices = [price_of(model, Usage(prompt_tokens=tokens, cached_tokens=tokens)) for model, tokens in by_model.items()]
    known = [price for price in prices if price is not None]
    if not known:
        return None
    spent = sum(call.cost or 0.0 for call in calls if call.purpose != "agent")
    return sum(known) - spent
