"""The cost of a session's requests if its client had compacted at another size: recorded requests, replayed by usage.

    steps = [Step(40_000, cached=0, written=40_000), Step(44_000, cached=40_000, written=4_000), …]
    replayed(steps, compaction_point=100_000, price=lambda usage: price_of("claude-opus-4-5", usage))

A request costs by its size, so the size that a window may reach before it is compacted decides what a session costs.
The replay keeps the recorded growth of each request and the recorded cache misses; from the first compaction on, a
request holds the hidden prefix (system prompt and tools), the client's summary, the hand-off, and what came since. Each
compaction is charged: the call that writes the summary, the new window that the cache has not seen, and what agents
read again afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from contextstash_storage.records import Usage

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
    return WindowCost(sum(price(_usage(step)) for step in steps), sum(step.prompt for step in steps), 0)


def replayed(steps: Sequence[Step], compaction_point: int, price: Price, handoff_tokens: int = 0) -> WindowCost:
    """What the requests of one conversation would have cost if the client had compacted whenever a request would have
    exceeded `compaction_point` tokens. `handoff_tokens` is the size of the hand-off that a new window is given."""
    if not steps:
        return WindowCost(0.0, 0, 0)
    prefix = hidden_prefix(steps)
    restarted = prefix + SUMMARY_TOKENS + handoff_tokens
    size, cost, tokens, compactions = steps[0].prompt, price(_usage(steps[0])), steps[0].prompt, 0
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
        return _usage(step)
    fresh = step.prompt - step.cached
    if fresh > COLD * step.prompt:
        fresh = round(size * fresh / step.prompt)
    fresh = min(size, max(grown, fresh))
    unread = step.prompt - step.cached
    written = round(fresh * step.written / unread) if unread else 0
    return step.usage(size, size - fresh, min(fresh, written))


def _usage(step: Step) -> Usage:
    return step.usage(step.prompt, step.cached, step.written)
