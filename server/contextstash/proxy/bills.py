"""The bill of a request: what the provider reported, what it would have without contextstash, and which lever did it.

    bill = bill_of(prepared, usage, unedited, added, carried=0)
    state = bill.added_to(state, facts)

From the one to the other lead steps, each a usage of its own: the cache as it would have been without a rewrite, the
request as the client wrote it, without what contextstash adds, and with what the client's earlier compactions took out.
The differences of their prices are the levers, so that together they are exactly the difference of the whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from contextstash.messages.usage import with_cache
from contextstash.proxy.model_pricing import ModelPricing
from contextstash_storage.records import Lever, ProxiedSession, ProxiedTotals, Usage

MAX_DAYS = 62
"""Days of a session whose totals are kept. Beyond them, a receipt counts the older days of a session as well."""

NOTHING = Usage(prompt_tokens=0)
"""The usage of a request that would not have been made."""


@dataclass(frozen=True, slots=True)
class Step:
    """From the usage before to this one: `levers` are the tokens by which each of them makes the difference."""

    usage: Usage
    levers: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Bill:
    """What the provider reported of a request, and the steps to what it would have reported without contextstash."""

    usage: Usage
    steps: tuple[Step, ...]

    @property
    def without(self) -> Usage:
        """What the provider would have reported without contextstash."""
        return self.steps[-1].usage if self.steps else self.usage

    def added_to(self, state: ProxiedSession, facts: ModelPricing) -> ProxiedSession:
        """The session's state with the price of the request and the effect of each lever."""
        usages = [self.usage, *(step.usage for step in self.steps)]
        priced = [0.0 if usage is NOTHING else facts.price_of(usage) for usage in usages]
        known = [price for price in priced if price is not None]
        prices = known if len(known) == len(priced) else None
        changes: dict[str, object] = {"levers": _with_levers(state.levers, self.steps, prices)}
        if prices is not None:
            changes["priced"] = state.priced + 1
            changes["dollars_paid"] = state.dollars_paid + prices[0]
            changes["dollars_direct"] = state.dollars_direct + prices[-1]
        return state.model_copy(update=changes)


def _with_levers(levers: Mapping[str, Lever], steps: tuple[Step, ...], prices: list[float] | None) -> dict[str, Lever]:
    """The levers with the effect of these steps; that of one step is shared by tokens."""
    found = dict(levers)
    for place, step in enumerate(steps):
        gained = 0.0 if prices is None else prices[place + 1] - prices[place]
        whole = sum(step.levers.values())
        for name, tokens in step.levers.items():
            if tokens:
                old, share = found.get(name, Lever()), tokens / whole if whole else 1 / len(step.levers)
                found[name] = Lever(tokens=old.tokens + tokens, dollars=old.dollars + gained * share)
    return found


@dataclass(frozen=True, slots=True)
class Added:
    """What a request holds because of contextstash: tokens by lever, how many of them the request before held as well,
    and whether all that it brings was fetched again: then it would not have been made."""

    tokens: Mapping[str, int]
    before: int = 0
    retrieves: bool = False

    @property
    def fetched_again(self) -> int:
        """Tokens of outputs that had been taken out before."""
        return self.tokens.get("fetched_again", 0)


def bill_of(usage: Usage, unedited: Usage, removed: Mapping[str, int], added: Added, carried: int | None = 0) -> Bill:
    """The bill of a request. `unedited` is the request as the client wrote it, larger by what was `removed`; `carried`
    are the tokens that compactions took out which the client would not have made, None if this is the request for such
    a compaction."""
    if added.retrieves or carried is None:
        lever = "retrieval_requests" if added.retrieves else "smaller_window"
        return Bill(usage, (Step(NOTHING, {lever: -usage.prompt_tokens}),))
    less = _less(unedited, added)
    steps = (_cache_kept(usage, unedited), Step(unedited, removed), less)
    more = (_with_history(less.usage, carried),) if carried else ()
    return Bill(usage, (*steps, *more))


def _cache_kept(usage: Usage, unedited: Usage) -> Step:
    """The usage without rewriting the cache: what is new to it is what would have been new in the unedited request."""
    fresh, usual = (each.prompt_tokens - each.cached_tokens for each in (usage, unedited))
    again = max(0, fresh - usual)
    kept = with_cache(usage, usage.cached_tokens + again, max(0, usage.cache_write_tokens - again))
    return Step(kept, {"cache_rewrites": -again})


def _less(unedited: Usage, added: Added) -> Step:
    """The usage without what contextstash adds: what stood in the request before was read from the cache."""
    whole = min(unedited.prompt_tokens, sum(added.tokens.values()))
    known = min(whole, added.before, unedited.cached_tokens)
    prompt = unedited.prompt_tokens - whole
    read = min(unedited.cached_tokens - known, prompt)
    less = with_cache(unedited, read, max(0, unedited.cache_write_tokens - (whole - known)))
    return Step(
        less.model_copy(update={"prompt_tokens": prompt}), {name: -tokens for name, tokens in added.tokens.items()}
    )


def _with_history(usage: Usage, carried: int) -> Step:
    """The usage with the history that the client would still send: read from the cache, if anything is."""
    read, written = usage.cached_tokens, usage.cache_write_tokens
    more = with_cache(usage, read + carried, written) if read else usage
    more = with_cache(usage, read, written + carried) if written and not read else more
    return Step(more.model_copy(update={"prompt_tokens": usage.prompt_tokens + carried}), {"smaller_window": carried})


def on_its_day(state: ProxiedSession, at: float) -> ProxiedSession:
    """The state, with its totals kept as those at the start of the day, if this is the day's first request."""
    day = datetime.fromtimestamp(at, UTC).date().isoformat()
    if day in state.days:
        return state
    totals = ProxiedTotals(**{name: getattr(state, name) for name in ProxiedTotals.model_fields})
    kept = dict(list({**state.days, day: totals}.items())[-MAX_DAYS:])
    return state.model_copy(update={"days": kept})
