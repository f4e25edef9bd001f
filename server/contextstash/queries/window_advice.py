"""The cost of recorded sessions in smaller windows: recorded requests, replayed by their reported usage.

A request costs by its size, so the size that a window may reach before it is compacted decides what a session costs.
The replay keeps the recorded growth of each request and the recorded cache misses; from the first compaction on, a
request holds the hidden prefix (system prompt and tools), the client's summary, the hand-off, and what came since. Each
compaction is charged: the call that writes the summary, the new window that the cache has not seen, and what agents
read again afterwards.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from contextstash.queries.receipt import MAX_CALLS
from contextstash.results import AdvisedWindow, WindowAdvice
from contextstash.session.access import Access
from contextstash.window.models import price_of
from contextstash_storage.records import Call, Session, Usage

LACKING = {60_000: 9.1, 80_000: 7.0, 100_000: 5.3, 120_000: 4.2, 150_000: 2.7}
"""The sizes that are compared, in tokens: below 60,000 the hidden prefix, the summary and what is read again take half
of the window; above 150,000 most clients compact anyway. For each, the replies, in percent, that used something which
neither the new window with its hand-off nor one search held: measured on 13 sessions of Claude Code (`bench.windows`;
docs/measured.md), as hand-offs of the user's own sessions would take a second for each session and size."""

MIN_CALLS = 30
"""Sessions with fewer calls are left out: they rarely fill a window, and would make every size look alike."""

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

COLD = 0.5
"""A request that read less than half of its tokens from the cache met a cache that had expired. If the share is wrong,
a request of a session with a very large new output is charged as cold: the same on both sides of the comparison."""

MIN_FREED = 0.25
"""A compaction must free this share of the point at which it happens, else the client would compact at each request."""

Price = Callable[[Usage], float]
"""The price of one request, in any unit."""


class WindowCost(NamedTuple):
    """What requests would have cost, in the unit of the price, summaries and repeated reads included; how many tokens
    they would have sent, and how often the client would have compacted more than it did."""

    cost: float
    tokens: int
    compactions: int


def replayed(calls: Sequence[Usage], compaction_point: int | None, price: Price) -> WindowCost:
    """What the requests of one conversation would have cost if the client had compacted whenever a request would have
    exceeded `compaction_point` tokens; None is as they were recorded."""
    if compaction_point is None:
        return WindowCost(sum(map(price, calls)), sum(call.prompt_tokens for call in calls), 0)
    prefix = hidden_prefix(calls)
    restarted = prefix + SUMMARY_TOKENS + HANDOFF_TOKENS + REREAD_TOKENS
    sent, compactions = [calls[0]], 0
    size = calls[0].prompt_tokens
    for before, call in pairwise(calls):
        growth = call.prompt_tokens - before.prompt_tokens
        if call.prompt_tokens < RESTART * before.prompt_tokens:
            size, grown = min(size, call.prompt_tokens), 0
        else:
            grown, size = max(0, growth), min(call.prompt_tokens, max(prefix, size + growth))
        if size > compaction_point and size - restarted > MIN_FREED * compaction_point:
            cached = max(0, size - grown)
            sent.append(Usage(prompt_tokens=size, cached_tokens=cached, completion_tokens=SUMMARY_TOKENS))
            size, compactions = restarted, compactions + 1
            sent.append(_resized(call, size, prefix, size - prefix))
        elif size == call.prompt_tokens:
            sent.append(call)
        else:
            unread = call.prompt_tokens - call.cached_tokens
            # The same growth, and the same luck with the cache
            fresh = round(size * unread / call.prompt_tokens) if unread > COLD * call.prompt_tokens else unread
            fresh = min(size, max(grown, fresh))
            written = round(fresh * call.cache_write_tokens / unread) if unread else 0
            sent.append(_resized(call, size, size - fresh, min(fresh, written)))
    return WindowCost(sum(map(price, sent)), sum(each.prompt_tokens for each in sent), compactions)


def _resized(call: Usage, size: int, cached: int, written: int) -> Usage:
    """A request of another size, of whose writes the cache keeps the same share for an hour."""
    share = call.cache_write_1h_tokens / call.cache_write_tokens if call.cache_write_tokens else 0.0
    sizes = {"prompt_tokens": size, "cached_tokens": cached, "cache_write_tokens": written}
    return call.model_copy(update={**sizes, "cache_write_1h_tokens": round(written * share)})


def hidden_prefix(calls: Sequence[Usage]) -> int:
    """The tokens of system prompt and tools, which stay in each window: the smallest part that any later request read
    from the cache, or else the first request. The first part of a request that a provider serves from its cache is the
    prefix that all of a client's sessions share."""
    return min([calls[0].prompt_tokens, *(call.cached_tokens for call in calls[1:] if call.cached_tokens)])


async def advise(access: Access, sessions: Iterable[Session]) -> WindowAdvice:
    """The cost of these sessions' requests in windows of several sizes. Sessions with few calls, without
    reported usage or with a model of unknown price are left out and counted."""
    found = []
    for session in sessions:
        calls = await access.store.read_log(session.session_id, Call, limit=MAX_CALLS)
        found.append(await asyncio.to_thread(_conversation, calls))
    known = [each for each in found if each is not None]
    return await asyncio.to_thread(_advice, known, len(found) - len(known))


def _conversation(calls: Sequence[Call]) -> tuple[list[Usage], Price] | None:
    """The calls of a session to its main model, with their price; None if nothing can be learned from them."""
    agent = [call for call in calls if call.purpose == "agent" and call.prompt_tokens >= MIN_PROMPT_TOKENS]
    if not agent:
        return None
    [(model, _)] = Counter(call.model for call in agent).most_common(1)
    used = [Usage(**call.model_dump(include=set(Usage.model_fields))) for call in agent if call.model == model]
    if len(used) < MIN_CALLS or price_of(model, Usage(prompt_tokens=MIN_PROMPT_TOKENS)) is None:
        return None
    return used, lambda usage: price_of(model, usage) or 0.0


def _advice(conversations: Sequence[tuple[list[Usage], Price]], left_out: int) -> WindowAdvice:
    def together(point: int | None) -> WindowCost:
        found = [replayed(calls, point, price) for calls, price in conversations]
        return WindowCost(*map(sum, zip(*found, strict=True))) if found else WindowCost(0.0, 0, 0)

    def window(point: int) -> AdvisedWindow:
        found = together(point)
        return AdvisedWindow(
            compaction_point=point,
            dollars=round(found.cost, 2),
            cost_percent=round(100 * found.cost / recorded.cost, 1) if recorded.cost else None,
            more_compactions=found.compactions,
            lacking_percent=LACKING[point],
        )

    recorded = together(None)
    return WindowAdvice(
        conversations=len(conversations),
        left_out=left_out,
        requests=sum(len(calls) for calls, _ in conversations),
        dollars=round(recorded.cost, 2),
        windows=[window(point) for point in LACKING],
    )
