"""The cost of recorded sessions in smaller windows: the figures of `contextstash advise`."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence

from contextstash.configuration.windows_and_prices import price_of
from contextstash.queries.savings import MAX_CALLS
from contextstash.results import AdvisedWindow, WindowAdvice
from contextstash.session.access import Access
from contextstash.window.window_costs import Price, Step, WindowCost, recorded_cost, replayed
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
    steps = [_step(call) for call in agent if call.model == model]
    price = _price(model)
    return None if price is None or len(steps) < MIN_CALLS else (steps, price)


def _step(call: Call) -> Step:
    written, long = call.cache_write_tokens, call.cache_write_1h_tokens
    return Step(call.prompt_tokens, call.cached_tokens, written, long, call.completion_tokens)


def _price(model: str | None) -> Price | None:
    if price_of(model, Usage(prompt_tokens=MIN_PROMPT_TOKENS)) is None:
        return None
    return lambda usage: price_of(model, usage) or 0.0


def _advice(conversations: Sequence[tuple[list[Step], Price]], left_out: int) -> WindowAdvice:
    recorded = _together(recorded_cost(steps, price) for steps, price in conversations)
    rows = []
    for point in COMPACTION_POINTS:
        costs = (replayed(steps, point, price, HANDOFF_TOKENS) for steps, price in conversations)
        rows.append(_row(point, _together(costs), recorded))
    return WindowAdvice(
        conversations=len(conversations),
        left_out=left_out,
        requests=sum(len(steps) for steps, _ in conversations),
        dollars=round(recorded.cost, 2),
        tokens_sent=recorded.tokens,
        windows=rows,
    )


def _together(costs: Iterable[WindowCost]) -> WindowCost:
    listed = list(costs)
    names = ("cost", "tokens", "compactions")
    return WindowCost(**{name: sum(getattr(each, name) for each in listed) for name in names})


def _row(point: int, cost: WindowCost, recorded: WindowCost) -> AdvisedWindow:
    return AdvisedWindow(
        compaction_point=point,
        dollars=round(cost.cost, 2),
        cost_percent=round(100 * cost.cost / recorded.cost, 1) if recorded.cost else None,
        tokens_percent=round(100 * cost.tokens / recorded.tokens, 1) if recorded.tokens else None,
        more_compactions=cost.compactions,
        lacking_percent=LACKING[point],
    )
