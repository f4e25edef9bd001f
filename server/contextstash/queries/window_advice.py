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
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from contextstash.configuration.windows_and_prices import price_of
from contextstash.queries.receipt import MAX_CALLS
from contextstash.results import AdvisedWindow, WindowAdvice
from contextstash.session.access import Access
from contextstash_storage.records import Call, Session, Usage

COMPACTION_POINTS = (60_000, 80_000, 100_000, 120_000, 150_000)
"""The sizes that are compared, in tokens. Below 60,000 the hidden prefix, the summary and what is read again take half
of the window; above 150,000 most clients compact anyway."""

LACKING = {60_000: 9.1, 80_000: 7.0, 100_000: 5.3, 120_000: 4.2, 150_000: 2.7}
"""Replies, in percent, that used something which neither the new window with its hand-off nor one search held: measured
on 13 sessions of Claude Code (`bench.windows`; docs/measured.md). Not of the user's own sessions: their hand-offs would
take a second for each session and size."""

MIN_CALLS = 30
"""Sessions with fewer calls are left out: they rarely fill a window, and would make every size look alike."""

MIN_PROMPT_TOKENS = 1_000
"""A smaller request is a side call of the client, such as one that makes a title."""

HANDOFF_TOKENS = 5_000
"""Tokens of the hand-off to a new window, as counted for the replay: its default size."""


SUMMARY_TOKENS = 3_000
"""A client's own summary: the median of 28 compactions of Claude Code was 2,990 tokens."""

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


@dataclass(frozen=True, slots=True)
class Step:
    """One recorded request, in tokens: the whole prompt, and how much of it was read from and written to the cache,
    `long` of it for an hour; and the tokens of its `reply`."""

    prompt: int
    cached: int = 0
    written: int = 0
    long: int = 0
    reply: int = 0

    @property
    def as_sent(self) -> Usage:
        """The request as it was."""
        return self.usage(self.prompt, self.cached, self.written)

    def usage(self, prompt: int, cached: int, written: int) -> Usage:
        """A request of another size, of whose writes the cache keeps the same share for an hour."""
        long = round(written * self.long / self.written) if self.written else 0
        return Usage(
            prompt_tokens=prompt,
            completion_tokens=self.reply,
            cached_tokens=cached,
            cache_write_tokens=written,
            cache_write_1h_tokens=long,
        )


@dataclass(frozen=True, slots=True)
class WindowCost:
    """What the requests would have cost, in the unit of the price, summaries and repeated reads included; how many
    tokens they would have sent, and how often the client would have compacted more than it did."""

    cost: float
    tokens: int
    compactions: int


def recorded_cost(steps: Sequence[Step], price: Price) -> WindowCost:
    """What the requests cost as they were recorded."""
    return WindowCost(sum(price(step.as_sent) for step in steps), sum(step.prompt for step in steps), 0)


def replayed(steps: Sequence[Step], compaction_point: int, price: Price, handoff_tokens: int = 0) -> WindowCost:
    """What the requests of one conversation would have cost if the client had compacted whenever a request would have
    exceeded `compaction_point` tokens. `handoff_tokens` is the size of the hand-off that a new window is given."""
    if not steps:
        return WindowCost(0.0, 0, 0)
    prefix = hidden_prefix(steps)
    restarted = prefix + SUMMARY_TOKENS + handoff_tokens
    size, cost, tokens, compactions = steps[0].prompt, price(steps[0].as_sent), steps[0].prompt, 0
    for before, step in pairwise(steps):
        growth = step.prompt - before.prompt
        if step.prompt < RESTART * before.prompt:
            size, grown = min(size, step.prompt), 0
        else:
            grown, size = max(0, growth), min(step.prompt, max(prefix, size + growth))
        if size > compaction_point and size - restarted - REREAD_TOKENS > MIN_FREED * compaction_point:
            cost += price(
                Usage(prompt_tokens=size, cached_tokens=max(0, size - grown), completion_tokens=SUMMARY_TOKENS)
            )
            tokens, compactions = tokens + size, compactions + 1
            size = restarted + REREAD_TOKENS
            sent = step.usage(size, prefix, size - prefix)
        else:
            sent = _resized(step, size, grown)
        cost, tokens = cost + price(sent), tokens + sent.prompt_tokens
    return WindowCost(cost, tokens, compactions)


def hidden_prefix(steps: Sequence[Step]) -> int:
    """The tokens of system prompt and tools, which stay in each window: the smallest part that any later request read
    from the cache, or else the first request. The first part of a request that a provider serves from its cache is the
    prefix that all of a client's sessions share."""
    read = [step.cached for step in steps[1:] if step.cached]
    return min([steps[0].prompt, *read])


def _resized(step: Step, size: int, grown: int) -> Usage:
    """A recorded request as one of another size: the same growth, and the same luck with the cache."""
    if size == step.prompt:
        return step.as_sent
    fresh = step.prompt - step.cached
    if fresh > COLD * step.prompt:
        fresh = round(size * fresh / step.prompt)
    fresh = min(size, max(grown, fresh))
    unread = step.prompt - step.cached
    written = round(fresh * step.written / unread) if unread else 0
    return step.usage(size, size - fresh, min(fresh, written))


async def advise(access: Access, sessions: Iterable[Session]) -> WindowAdvice:
    """The cost of these sessions' requests in windows of several sizes. Sessions with few calls, without
    reported usage or with a model of unknown price are left out and counted."""
    replayable: list[tuple[list[Step], Price]] = []
    left_out = 0
    for session in sessions:
        calls = await access.store.read_calls(session.session_id, limit=MAX_CALLS)
        if (found := await asyncio.to_thread(_conversation, calls)) is None:
            left_out += 1
        else:
            replayable.append(found)
    return await asyncio.to_thread(_advice, replayable, left_out)


def _conversation(calls: Sequence[Call]) -> tuple[list[Step], Price] | None:
    """The calls of a session to its main model as steps, with their price; None if nothing can be learned from them."""
    agent = [call for call in calls if call.purpose == "agent" and call.prompt_tokens >= MIN_PROMPT_TOKENS]
    if not agent:
        return None
    [(model, _)] = Counter(call.model for call in agent).most_common(1)
    steps = [
        Step(
            call.prompt_tokens,
            call.cached_tokens,
            call.cache_write_tokens,
            call.cache_write_1h_tokens,
            call.completion_tokens,
        )
        for call in agent
        if call.model == model
    ]
    if len(steps) < MIN_CALLS or price_of(model, Usage(prompt_tokens=MIN_PROMPT_TOKENS)) is None:
        return None
    return steps, lambda usage: price_of(model, usage) or 0.0


def _advice(conversations: Sequence[tuple[list[Step], Price]], left_out: int) -> WindowAdvice:
    recorded = _together(recorded_cost, conversations)
    rows = []
    for point in COMPACTION_POINTS:
        found = _together(partial(_at, point), conversations)
        rows.append(
            AdvisedWindow(
                compaction_point=point,
                dollars=round(found.cost, 2),
                cost_percent=round(100 * found.cost / recorded.cost, 1) if recorded.cost else None,
                tokens_percent=round(100 * found.tokens / recorded.tokens, 1) if recorded.tokens else None,
                more_compactions=found.compactions,
                lacking_percent=LACKING[point],
            )
        )
    return WindowAdvice(
        conversations=len(conversations),
        left_out=left_out,
        requests=sum(len(steps) for steps, _ in conversations),
        dollars=round(recorded.cost, 2),
        tokens_sent=recorded.tokens,
        windows=rows,
    )


def _together(
    cost: Callable[[list[Step], Price], WindowCost], conversations: Sequence[tuple[list[Step], Price]]
) -> WindowCost:
    found = [cost(steps, price) for steps, price in conversations]
    return WindowCost(
        sum(each.cost for each in found), sum(each.tokens for each in found), sum(each.compactions for each in found)
    )


def _at(point: int, steps: list[Step], price: Price) -> WindowCost:
    return replayed(steps, point, price, HANDOFF_TOKENS)
