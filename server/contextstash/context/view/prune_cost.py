"""When a prune of a client's own requests costs less than it saves, given the provider's prompt cache.

Providers cache a request up to its end, and the next one reads what is equal from the start on. So an edit makes the
provider write everything behind it again. That costs nothing extra if the cache has expired anyway; otherwise it must
be earned back by cheaper reads in the requests that follow. A prune by level alone, or a little with each request, pays
that price again and again: replayed on recorded sessions, a prune at each turn made the worst session cost 1.26 times
as much as no prune (bench/proxy).

When to pay the price once more is the problem of renting or buying skis: how long the session continues is unknown. So
a batch is pruned as soon as carrying it, this request included, has cost what pruning it does. Whatever follows, the
cost stays within twice that of the best decision; batches grow with the price of writing and with what must be written
again; and what costs more to carry once than to prune, such as a large output that was just read, leaves at once. Many
sessions end soon after. So a prune risks what earlier ones have saved, and little more: if the session ends with this
request, it has cost hardly more than it would have unedited.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class CachePrices:
    """Prices of a token read from and written to the cache, relative to one uncached input token, and how many seconds
    the cache is kept after its last use. `look_back` is in how many blocks before a breakpoint the provider looks for
    the end of an earlier request; None if it finds any common start."""

    read: float
    write: float
    seconds: int
    look_back: int | None = None


FIVE_MINUTES = CachePrices(0.1, 1.25, 300, 20)
ONE_HOUR = CachePrices(0.1, 2.0, 3600, 20)
"""Anthropic's two kinds of cache breakpoint. Source: https://docs.claude.com/en/docs/build-with-claude/prompt-caching"""

AUTOMATIC = CachePrices(0.1, 1.0, 3600)
"""OpenAI's automatic cache: writing costs nothing extra, GPT-5 models read at a tenth. Prefixes are kept 5 to 10
minutes and at most an hour, so only then is the cache surely gone. Source: OpenAI's guide to prompt caching."""

MIN_TOKENS = 3_000
"""Tokens that a prune must free, also if it costs nothing: less is not worth an output that may be fetched again."""

MAX_TURNS = 50
"""The most further requests that a prune may count on before the cache expires, the client compacts or the session
ends. In a simulation of recorded sessions 50 and 100 were equally good, and no session cost more than without a
prune."""

MIN_WORTHWHILE = 1.2
"""A warm prune must save this many times its cost. It is a margin for outputs that are fetched again."""

MAX_LOSS = 0.02
"""By which share of what a session would have cost unedited it may cost more, if it ends right after a prune.
1 to 3 % make no difference in a simulation of recorded sessions, but with 1 % a session of small outputs waits very
long."""

SLACK_SECONDS = 15
"""Seconds after the end of a cache's time until it counts as cold: the provider's clock started elsewhere."""


class Prunable(NamedTuple):
    """A tool result of a request that may be replaced: the tokens in front of it, its own tokens, and those of the
    placeholder. `key` is the caller's name for it; `carried` is how many requests have carried it since it was old
    enough to be replaced."""

    key: str
    before: int
    tokens: int
    placeholder_tokens: int
    carried: int = 0

    @property
    def saved(self) -> int:
        return self.tokens - self.placeholder_tokens


@dataclass(frozen=True, slots=True)
class CacheState:
    """The provider's cache at the moment of a request: `cached` are the tokens, from the start on, that it holds if it
    is not `cold`; `anchors` are the tokens in front of each place up to which it finds an earlier request, such as the
    end of the system prompt, in ascending order; `turns` is how many requests of this session there were. A prune may
    cost `affordable`, in uncached input tokens."""

    cold: bool
    cached: int
    turns: int
    prices: CachePrices = FIVE_MINUTES
    anchors: tuple[int, ...] = ()
    affordable: float = math.inf


@dataclass(frozen=True, slots=True)
class CachedPrune:
    """The results to replace, in order, and why; no results if it does not pay. `rewritten` are the tokens behind the
    first one that the cache holds, and that are written again."""

    chosen: tuple[Prunable, ...]
    reason: str
    rewritten: int = 0

    @property
    def saved(self) -> int:
        return sum(each.saved for each in self.chosen)


def is_cold(now: float, last_at: float, cache_seconds: int) -> bool:
    """Whether the cache has expired: by the time since its last use alone. A single request that read nothing from the
    cache says little, since requests are routed to different machines."""
    return now - last_at > cache_seconds + SLACK_SECONDS


def affordable(paid: float, unedited: float) -> float:
    """What a prune may cost in a session that has cost `paid` so far, and would have cost `unedited`: what earlier ones
    have saved, or MAX_LOSS if that is more, but not both, so that a session whose prunes paid off ends below that."""
    saved = unedited - paid
    return max(saved, MAX_LOSS * unedited + min(saved, 0.0), 0.0)


def likely_turns(turns: int) -> int:
    """How many more requests will probably profit: as many as there were, the best estimate for something of unknown
    length, but not more than MAX_TURNS."""
    return min(turns, MAX_TURNS)


def plan_cached_prune(candidates: Sequence[Prunable], state: CacheState) -> CachedPrune:
    """The prune that saves most: all candidates if the cache is cold; otherwise those from the position on at which the
    saving of the likely requests exceeds the cost of writing again what follows it by most, if carrying them has cost
    as much already."""
    useful = [each for each in candidates if each.saved > 0]
    if state.cold:
        freed = sum(each.saved for each in useful)
        if freed < MIN_TOKENS:
            return CachedPrune((), f"cold cache, but only {freed:,} tokens to free")
        return CachedPrune(tuple(useful), "cold cache")
    return _warm(useful, state)


def _warm(useful: Sequence[Prunable], state: CacheState) -> CachedPrune:
    read, again = state.prices.read, state.prices.write - state.prices.read
    turns, cached, affordable = likely_turns(state.turns), state.cached, state.affordable
    best: tuple[float, int, int] = (0.0, -1, 0)
    if not cached:
        return CachedPrune((), "what the cache holds is not known")
    freed, carried = 0, 0.0
    for place in range(len(useful) - 1, -1, -1):
        _, before, tokens, placeholder, requests = useful[place]
        freed += tokens - placeholder
        carried += read * (tokens - placeholder) * (requests + 1)
        if freed < MIN_TOKENS:
            continue
        rewritten = max(0, cached - _still_cached(before, state) - freed)
        cost, saving = rewritten * again, turns * read * freed
        if saving - cost > best[0] and carried >= cost and saving > MIN_WORTHWHILE * cost and cost <= affordable:
            best = (saving - cost, place, rewritten)
    if best[1] < 0:
        return CachedPrune((), "warm cache, and no prune pays for itself")
    return CachedPrune(tuple(useful[best[1] :]), "pays for itself", best[2])


def _still_cached(before: int, state: CacheState) -> int:
    """The tokens that are read from the cache although everything behind the first `before` has changed."""
    if state.prices.look_back is None:
        return before
    place = bisect_right(state.anchors, before)
    return state.anchors[place - 1] if place else 0


def plan_needed_prune(candidates: Sequence[Prunable]) -> CachedPrune:
    """All candidates, because the provider refused the request as too long."""
    useful = tuple(each for each in candidates if each.saved > 0)
    return CachedPrune(useful, "the request was too long" if useful else "nothing left to prune")
