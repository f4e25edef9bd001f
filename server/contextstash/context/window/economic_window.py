"""The setting `window="economic"`: the largest window that costs hardly more than the cheapest one, by the prices.

A loop that compacts at `top` tokens and goes on with `bottom` sends, for each cycle, requests of all sizes in between.
Each reads what the one before held from the cache and writes what is new; the first one after a compaction finds only
the fixed part (system prompt and tools) there. So a cycle costs

    price(bottom, cached: fixed) + sum of price(size, cached: size - growth) for size from bottom to top, by the growth

and takes in `top - bottom` tokens, of which `REREAD_TOKENS` are repeated reads of what the compaction took away. The
cost of a window is that of a cycle for each new token. Small windows compact often and write much again, large ones
read much with each request: in between is a flat valley, whose place depends on what reads and writes cost and on the
sizes above which a model's prices rise. Within the valley the largest window is taken, since it forgets least.
"""

from __future__ import annotations

from collections.abc import Callable

from contextstash.context.window.window_costs import REREAD_TOKENS, Price
from contextstash_storage.records import Usage

GROWTH_TOKENS = 1_200
"""What a request adds to the one before: the mean of 2,840 requests of recorded sessions of Claude Code is 1,170, that
of 930 of Codex 1,040. If a loop reads twice as much with each request, its cheapest window is 1.4 times as large."""

TOLERANCE = 1.10
"""The cost of the chosen window in relation to that of the cheapest one."""

MIN_KEPT = 12_000
"""Tokens besides the fixed part that a window holds soon after a compaction, also if that leaves less: a client's own
summary (3,000) and what agents read again after one (8,700) together."""

STEP = 1.1
"""The ratio of neighbouring windows that are compared: near the cheapest one the cost changes by 1 % between them."""

SAMPLES = 8
"""Requests of a cycle whose price is looked up; those in between cost the mean. A step in a price table is charged to
within an eighth of the cycle."""

Cycle = Callable[[int], tuple[int, int]]
"""The sizes at which a window of so many tokens is compacted, and with which it then goes on."""


def economic_window(largest: int, fixed: int, cycle: Cycle, price: Price) -> int:
    """The largest window, of at most `largest` tokens, that costs at most a tenth more than the cheapest one. `fixed`
    tokens stay in the cache at a compaction."""
    sizes, size = [largest], float(largest)
    while (size := size / STEP) > fixed + MIN_KEPT:
        sizes.append(int(round(size, -3)))
    costs = {tokens: cost for tokens in sizes if (cost := cost_of(*cycle(tokens), fixed, price)) is not None}
    if not costs:
        return largest
    cheapest = min(costs.values())
    return max(tokens for tokens, cost in costs.items() if cost <= TOLERANCE * cheapest)


def cost_of(top: int, bottom: int, fixed: int, price: Price) -> float | None:
    """The cost of a new token in a loop between these sizes; None if its cycles take in nothing new."""
    bottom = max(bottom, fixed + MIN_KEPT)
    taken_in = top - bottom - REREAD_TOKENS
    if taken_in <= 0:
        return None
    restart = price(Usage(prompt_tokens=bottom, cached_tokens=fixed, cache_write_tokens=bottom - fixed))
    sizes = [bottom + round((top - bottom) * (place + 0.5) / SAMPLES) for place in range(SAMPLES)]
    mean = sum(price(_grown(size)) for size in sizes) / SAMPLES
    return (restart + mean * (top - bottom) / GROWTH_TOKENS) / taken_in


def _grown(size: int) -> Usage:
    new = min(size, GROWTH_TOKENS)
    return Usage(prompt_tokens=size, cached_tokens=size - new, cache_write_tokens=new)
