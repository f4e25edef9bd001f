"""What sessions cost, what contextstash saved of it, and what smaller windows would have cost.

A request costs by its size, so the size that a window may reach before it is compacted decides what a session costs.
Recorded requests are replayed by their reported usage: with the recorded growth of each, and the recorded cache misses.
From the first compaction on, a request holds the hidden prefix (system prompt and tools), the client's summary, the
hand-off, and what came since. Each compaction is charged: the call that writes the summary, the new window that the
cache has not seen, and what agents read again afterwards.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from typing import Any

from contextstash.messages.base import with_cache
from contextstash.queries.sessions import SHRINKING, all_sessions, pages_of_sessions
from contextstash.record.output_archive import OUTPUTS_AGENT, kept_outputs
from contextstash.record.transcripts import COMPACTED
from contextstash.request.proxied import SUMMED
from contextstash.results import AdvisedWindow, Receipt, WindowAdvice
from contextstash.session.access import Access
from contextstash.window.models import price_of
from contextstash_storage.records import Call, Event, ProxiedSession, ProxiedTotals, Session, Usage

MAX_READ = 100_000

PAUSE = timedelta(minutes=5)
"""How long providers keep a prompt in their cache: what a call after a longer pause writes again no edit caused."""

METHOD = (
    "Billed: the usage that the provider reported, at list prices. Without contextstash: the same requests with what"
    " was left out of them, counted from its text, scaled by the reported usage and never above the model's window;"
    " without contextstash's tools and hand-offs, and what its tools fetched. What the model read again by its own"
    " tools is not deducted. What hooks and gateways shorten of new outputs is not in the dollars."
)

LACKING = {60_000: 9.1, 80_000: 7.0, 100_000: 5.3, 120_000: 4.2, 150_000: 2.7}
"""The sizes that are compared, in tokens: below 60,000 the hidden prefix, the summary and what is read again take half
of the window; above 150,000 most clients compact anyway. For each, the replies, in percent, that used something which
neither the new window with its hand-off nor one search held: measured on 13 sessions of Claude Code (`bench.windows`;
docs/measured.md), as hand-offs of the user's own sessions would take a second for each session and size."""

MIN_CALLS = 30
"""Sessions with fewer calls are left out: they rarely fill a window, and would make every size look alike."""

REPLAYED = 100
"""The newest sessions, if none is named: some weeks of work."""

MIN_PROMPT_TOKENS = 1_000
"""A smaller request is a side call of the client, such as one that makes a title."""

HANDOFF_TOKENS, SUMMARY_TOKENS = 5_000, 3_000
"""Tokens of the hand-off to a new window, its default size; and of a client's own summary: the median of 28 compactions
of Claude Code was 2,990 tokens."""

REREAD_TOKENS = 8_700
"""Tokens that an agent reads again after a compaction, of what it had read before: the mean of 28 compactions."""

RESTART = 0.7
"""A request smaller than this share of the one before it began with less history: the client compacted or the user went
back. Between two requests of a growing session the total falls by at most the thinking of a turn, some percent; a
session that falls less is followed as it is."""

MIN_FREED = 0.25
"""A compaction must free this share of the point at which it happens, else the client would compact at each request."""


async def receipt(access: Access, session_id: str | None = None, since: date | None = None) -> Receipt:
    """The receipt of a session with its sub-agents, or of all sessions, as far as they were used since a day (UTC).
    Raises SessionNotFoundError."""
    total: dict[str, float] = defaultdict(float)
    async for session in _chosen(access, session_id, since):
        calls = await access.store.read_log(session.session_id, Call, limit=MAX_READ)
        if since is not None:
            calls = [call for call in calls if call.created_at is not None and call.created_at.date() >= since]
        proxied = await access.proxied(session.session_id)
        figures = await _of_calls(access, session, calls) if proxied is None else _of_requests(proxied, calls, since)
        for name, figure in figures.items():
            total[name] += figure
    if "dollars_billed" in total:
        total["dollars_saved"] = total["dollars_without"] - total["dollars_billed"]
    rounded: dict[str, Any] = {name: round(figure, 4) for name, figure in total.items()}
    return Receipt(since=since.isoformat() if since else None, method=METHOD, **rounded)


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


async def _of_calls(access: Access, session: Session, calls: Sequence[Call]) -> dict[str, float]:
    """The receipt's fields of a session that does not go through the proxy, by the calls that it reported; those in
    dollars only if a price is known."""
    agent = [call for call in calls if call.purpose == "agent"]
    if not agent:
        return {}
    is_ours, events = session.source is None, list[Event]()
    if is_ours:  # else the client sends its own history, which our edits do not change
        log = await access.store.read_log(session.session_id, Event, keys=SHRINKING, newest=True, limit=MAX_READ)
        events = [event for event in reversed(log) if event.strategy not in COMPACTED]
    saved, gained = await asyncio.to_thread(_effect, events, agent)
    spent = _spent(calls) if is_ours else 0.0
    known = await asyncio.to_thread(_costs, agent)
    tokens = sum(call.prompt_tokens for call in agent)
    figures: dict[str, float] = {
        "sessions": 1,
        "unchanged_sessions": not (saved or gained or spent or await kept_outputs(access, session.session_id)),
        "requests": len(agent),
        "unpriced_requests": len(agent) - len(known),
        "tokens_billed": tokens,
        "tokens_without": tokens + saved,
    }
    if known:
        figures |= {"dollars_billed": sum(known) + spent, "dollars_without": sum(known) + gained}
    return figures


def _of_requests(proxied: ProxiedSession, calls: Sequence[Call], since: date | None) -> dict[str, float]:
    """The same of a session that goes through the proxy, by what the proxy counted since a day began."""
    if since is not None and proxied.last_at < datetime.combine(since, time(), UTC).timestamp():
        return {}
    days = sorted(day for day in proxied.days if since is not None and day >= since.isoformat())
    before = proxied.days[days[0]] if days else ProxiedTotals()
    state = ProxiedTotals(**{name: getattr(proxied, name) - getattr(before, name) for name in SUMMED})
    if not state.requests and not state.sent:
        return {}
    figures: dict[str, float] = {
        "sessions": 1,
        "requests": state.requests,
        "unpriced_requests": max(0, state.requests - state.priced),
        "tokens_billed": state.sent,
        "tokens_without": state.direct,
    }
    if state.priced:
        figures |= {"dollars_billed": state.dollars_paid + _spent(calls), "dollars_without": state.dollars_direct}
    return figures


def _costs(calls: Sequence[Call]) -> list[float]:
    """What each call cost, as it was recorded or else by list price (in 0.2 ms); without those of unknown price."""
    costs = (price_of(call.model, call) if call.cost is None else call.cost for call in calls)
    return [cost for cost in costs if cost is not None]


def _spent(calls: Sequence[Call]) -> float:
    """What summaries by a model cost."""
    return sum(call.cost or 0.0 for call in calls if call.purpose != "agent")


def _effect(events: Sequence[Event], calls: Sequence[Call]) -> tuple[int, float]:
    """The tokens that our edits kept out of the agent's prompts, and the dollars: at the price of cached tokens, the
    least that they would have cost. What they made the provider write again is deducted."""
    tokens, dollars, gone, waiting = 0, 0.0, 0, list(events)
    for before, call in zip([None, *calls], calls, strict=False):
        new = [event for event in waiting if event.seq <= call.request_seq + 1]
        waiting = waiting[len(new) :]
        removed = sum(event.tokens_before - event.tokens_after for event in new)
        gone += removed
        saved = max(0, gone)
        again = _written_again(before, call, removed) if new and before is not None else 0
        tokens += saved - again
        if saved:
            dollars += price_of(call.model, Usage(prompt_tokens=saved, cached_tokens=saved)) or 0.0
        if again:
            kept = with_cache(call, call.cached_tokens + again, max(0, call.cache_write_tokens - again))
            paid, usual = price_of(call.model, call), price_of(call.model, kept)
            dollars -= max(0.0, paid - usual) if paid is not None and usual is not None else 0.0
    return tokens, dollars


def _written_again(before: Call, call: Call, removed: int) -> int:
    """The tokens that were not read from a warm cache though the request before held them, because an event between
    them, which removed so many tokens, had changed what stands in front of them."""
    pause = call.created_at - before.created_at if call.created_at and before.created_at else PAUSE
    if pause > PAUSE or not before.cached_tokens + before.cache_write_tokens:
        return 0
    fresh = max(0, call.prompt_tokens + removed - before.prompt_tokens)
    return max(0, call.prompt_tokens - call.cached_tokens - fresh)


# Smaller windows.


def replayed(calls: Sequence[Usage], compaction_point: int) -> list[Usage]:
    """What the requests of one conversation would have been if the client had compacted whenever one would have
    exceeded `compaction_point` tokens."""
    prefix = hidden_prefix(calls)
    restarted = prefix + SUMMARY_TOKENS + HANDOFF_TOKENS + REREAD_TOKENS
    sent, size = [calls[0]], calls[0].prompt_tokens
    for before, call in pairwise(calls):
        growth = call.prompt_tokens - before.prompt_tokens
        if call.prompt_tokens < RESTART * before.prompt_tokens:
            size, grown = min(size, call.prompt_tokens), 0
        else:
            grown, size = max(0, growth), min(call.prompt_tokens, max(prefix, size + growth))
        if size > compaction_point and size - restarted > MIN_FREED * compaction_point:
            cached = max(0, size - grown)
            sent.append(Usage(prompt_tokens=size, cached_tokens=cached, completion_tokens=SUMMARY_TOKENS))
            size = restarted
            sent.append(_resized(call, size, prefix, size - prefix))
        elif size == call.prompt_tokens:
            sent.append(call)
        else:
            # The same growth, and the same luck with the cache.
            unread = call.prompt_tokens - call.cached_tokens
            fresh = min(size, max(grown, unread))
            written = round(fresh * call.cache_write_tokens / unread) if unread else 0
            sent.append(_resized(call, size, size - fresh, min(fresh, written)))
    return sent


def _resized(call: Usage, size: int, cached: int, written: int) -> Usage:
    return with_cache(call.model_copy(update={"prompt_tokens": size}), cached, written)


def hidden_prefix(calls: Sequence[Usage]) -> int:
    """The tokens of system prompt and tools, which stay in each window: the smallest part that any later request read
    from the cache, or else the first request. The first part of a request that a provider serves from its cache is the
    prefix that all of a client's sessions share."""
    return min([calls[0].prompt_tokens, *(call.cached_tokens for call in calls[1:] if call.cached_tokens)])


async def advise(access: Access, session_ids: Sequence[str] = ()) -> WindowAdvice:
    """The cost of the requests of these sessions, or of the newest, in windows of several sizes. Sessions with few
    calls, without reported usage or with a model of unknown price are left out and counted."""
    newest = await access.store.list_sessions(limit=REPLAYED, without_agent=OUTPUTS_AGENT, by_message=True)
    found = []
    for session_id in session_ids or [session.session_id for session in newest]:
        calls = await access.store.read_log(session_id, Call, limit=MAX_READ)
        found.append(await asyncio.to_thread(_conversation, calls))
    known = [each for each in found if each is not None]
    return await asyncio.to_thread(_advice, known, len(found) - len(known))


def _conversation(calls: Sequence[Call]) -> tuple[str | None, list[Usage]] | None:
    """The calls of a session to its main model; None if nothing can be learned from them."""
    agent = [call for call in calls if call.purpose == "agent" and call.prompt_tokens >= MIN_PROMPT_TOKENS]
    if len(agent) < MIN_CALLS:
        return None
    [(model, _)] = Counter(call.model for call in agent).most_common(1)
    used = [Usage(**call.model_dump(include=set(Usage.model_fields))) for call in agent if call.model == model]
    return None if len(used) < MIN_CALLS or price_of(model, used[0]) is None else (model, used)


def _advice(conversations: Sequence[tuple[str | None, list[Usage]]], left_out: int) -> WindowAdvice:
    def dollars(point: int | None) -> float:
        sent = ((model, calls if point is None else replayed(calls, point)) for model, calls in conversations)
        return sum(price_of(model, call) or 0.0 for model, calls in sent for call in calls)

    recorded = dollars(None)
    windows = [
        AdvisedWindow(
            compaction_point=point,
            dollars=round(cost, 2),
            cost_percent=round(100 * cost / recorded, 1),
            lacking_percent=lacking,
        )
        for point, lacking in LACKING.items()
        if (cost := dollars(point))
    ]
    return WindowAdvice(
        conversations=len(conversations),
        left_out=left_out,
        requests=sum(len(calls) for _, calls in conversations),
        dollars=round(recorded, 2),
        windows=windows,
    )
