"""Savings: the tokens and cost that prunes and compactions kept out of later requests."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from datetime import date, timedelta
from itertools import accumulate, pairwise

from contextstash.configuration.windows_and_prices import price_of
from contextstash.messages.usage import with_cache
from contextstash.record.client_edits import OF_CLIENTS_WINDOW
from contextstash.results import Savings
from contextstash.session.access import Access
from contextstash_storage.records import Call, Event, EventKind, Lever, Session, Usage

SHRINKING: tuple[EventKind, ...] = ("prune", "compaction", "restore", "recovery")

MAX_EVENTS = 10_000
MAX_CALLS = 100_000


PAUSE = timedelta(minutes=5)
"""How long providers keep a prompt in their cache: what a call after a longer pause writes
again was not caused by an edit."""


async def savings_of(access: Access, session: Session) -> Savings | None:
    """The savings of a session; None if nothing was saved, or if the client sends its own history, which our edits do
    not change. Each request was smaller by the tokens that earlier events had removed from the view."""
    now = -sum(session.counters.own.values())
    if session.source is not None or now <= 0:
        return None
    events, calls = await _read(access, session)
    by_model, requests = _saved(events, [call for call in calls if call.purpose == "agent"])
    priced = any(price_of(model, Usage(prompt_tokens=1)) is not None for model in by_model)
    gained = sum(lever.dollars for lever in _effects(events, calls).values())
    tokens = sum(by_model.values())
    return Savings(tokens_now=now, requests=requests, tokens=tokens, cost=gained if priced else None)


async def effects_of(access: Access, session: Session, since: date | None = None) -> dict[str, Lever]:
    """The effect of our edits on the bill since a day, by lever; empty if the client sends its own history.
    What they took out of requests counts at the price of cached tokens, the least that it would have cost."""
    if session.source is not None:
        return {}
    return _effects(*await _read(access, session), since)


async def _read(access: Access, session: Session) -> tuple[list[Event], list[Call]]:
    events = await access.store.last_events(session.session_id, SHRINKING, MAX_EVENTS)
    ours = [event for event in reversed(events) if event.strategy not in OF_CLIENTS_WINDOW]
    return ours, await access.store.read_calls(session.session_id, limit=MAX_CALLS)


def _effects(events: Sequence[Event], calls: Sequence[Call], since: date | None = None) -> dict[str, Lever]:
    recent = [
        call for call in calls if since is None or (call.created_at is not None and call.created_at.date() >= since)
    ]
    by_model, _ = _saved(events, [call for call in recent if call.purpose == "agent"])
    prices = (price_of(model, Usage(prompt_tokens=tokens, cached_tokens=tokens)) for model, tokens in by_model.items())
    again, rewrites = _rewrites(events, [call for call in recent if call.purpose == "agent"])
    spent = sum(call.cost or 0.0 for call in recent if call.purpose != "agent")
    found = {
        "smaller_views": Lever(tokens=sum(by_model.values()), dollars=sum(price or 0.0 for price in prices)),
        "cache_rewrites": Lever(tokens=-again, dollars=-rewrites),
        "summary_calls": Lever(dollars=-spent),
    }
    return {name: lever for name, lever in found.items() if lever.tokens or lever.dollars}


def _rewrites(events: Sequence[Event], calls: Sequence[Call]) -> tuple[int, float]:
    """The tokens that were not read from a warm cache though the request before held them, because an event had changed
    what stands in front of them; and what that cost."""
    tokens, dollars = 0, 0.0
    for before, call in pairwise(calls):
        between = [event for event in events if before.request_seq + 1 < event.seq <= call.request_seq + 1]
        pause = call.created_at - before.created_at if call.created_at and before.created_at else PAUSE
        if not between or pause > PAUSE or not before.cached_tokens + before.cache_write_tokens:
            continue
        removed = sum(event.tokens_before - event.tokens_after for event in between)
        fresh = max(0, call.prompt_tokens + removed - before.prompt_tokens)
        again = max(0, call.prompt_tokens - call.cached_tokens - fresh)
        usage = Usage(**{name: getattr(call, name) for name in Usage.model_fields})
        read = with_cache(usage, usage.cached_tokens + again, max(0, usage.cache_write_tokens - again))
        paid, kept = price_of(call.model, usage), price_of(call.model, read)
        tokens += again
        dollars += max(0.0, paid - kept) if paid is not None and kept is not None else 0.0
    return tokens, dollars


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
