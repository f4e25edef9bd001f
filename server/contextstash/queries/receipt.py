"""The receipt: what the provider billed, what it would have without contextstash, and what made the difference."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import UTC, date, datetime, time

from contextstash.queries.overview import cost_of_calls
from contextstash.queries.proxy_report import state_since
from contextstash.queries.savings import MAX_CALLS, effects_of
from contextstash.queries.sessions import all_sessions, pages_of_sessions
from contextstash.record.output_archive import OUTPUTS_AGENT, kept_outputs
from contextstash.results import Receipt, ReceiptLever
from contextstash.session.access import Access
from contextstash_storage.records import Lever, ProxiedSession, Session

METHOD = (
    "Billed: the usage that the provider reported, at list prices. Without contextstash: the same requests with what"
    " was left out of them, counted from its text, scaled by the reported usage and never above the model's window;"
    " without contextstash's tools and hand-offs, and without what was fetched or read again. In sessions that do not"
    " go through the proxy, hooks and gateways shorten new outputs: that is not in the dollars."
)


async def receipt(access: Access, session_id: str | None = None, since: date | None = None) -> Receipt:
    """The receipt of a session with its sub-agents, or of all sessions, as far as they were used since a day (UTC).
    Raises SessionNotFoundError."""
    found = _Sum()
    sessions = _all(access, since) if session_id is None else _family(access, await access.read_session(session_id))
    async for session in sessions:
        await _add(found, access, session, since)
    return found.receipt(since)


class _Sum:
    """The sums over the sessions so far."""

    def __init__(self) -> None:
        self.sessions = self.requests = self.unpriced = self.tokens = self.tokens_without = 0
        self.billed = self.without = 0.0
        self.priced = False
        self.unchanged = self.shortened = self.shortened_tokens = 0
        self.levers: dict[str, Lever] = {}

    def add_dollars(self, billed: float | None, without: float | None) -> None:
        """Add the price of some requests."""
        if billed is not None and without is not None:
            self.billed, self.without, self.priced = self.billed + billed, self.without + without, True

    def add_levers(self, levers: Mapping[str, Lever]) -> None:
        """Add the effect of each lever."""
        for name, lever in levers.items():
            old = self.levers.get(name, Lever())
            self.levers[name] = Lever(tokens=old.tokens + lever.tokens, dollars=old.dollars + lever.dollars)

    def receipt(self, since: date | None) -> Receipt:
        """The receipt of all of it."""
        priced = self.priced
        return Receipt(
            since=since.isoformat() if since else None,
            sessions=self.sessions,
            unchanged_sessions=self.unchanged,
            requests=self.requests,
            unpriced_requests=self.unpriced,
            tokens_billed=self.tokens,
            tokens_without=self.tokens_without,
            dollars_billed=round(self.billed, 4) if priced else None,
            dollars_without=round(self.without, 4) if priced else None,
            dollars_saved=round(self.without - self.billed, 4) if priced else None,
            shortened_outputs=self.shortened or None,
            shortened_tokens=self.shortened_tokens or None,
            levers=_listed(self.levers, priced=priced),
            method=METHOD,
        )


def _listed(levers: Mapping[str, Lever], *, priced: bool) -> list[ReceiptLever]:
    """The levers, the largest gain first."""
    ordered = sorted(levers.items(), key=lambda each: (-each[1].dollars, -each[1].tokens))
    return [
        ReceiptLever(name=name, tokens=lever.tokens, dollars=round(lever.dollars, 4) if priced else None)
        for name, lever in ordered
        if lever.tokens or lever.dollars
    ]


async def _add(found: _Sum, access: Access, session: Session, since: date | None) -> None:
    proxied = await access.store.get_proxied(session.session_id)
    if proxied is not None:
        await _add_proxied(found, access, session, state_since(proxied, _at(proxied, since)), since)
        return
    days = [each for each in await access.store.session_days(session.session_id) if _in(each.day, since)]
    if not days:
        return
    effects = await effects_of(access, session, since)
    costs = [(cost_of_calls(day), day) for day in days]
    known = [cost for cost, _ in costs if cost is not None]
    found.sessions += 1
    shortened, whole = await kept_outputs(access, session.session_id)
    found.shortened, found.shortened_tokens = found.shortened + shortened, found.shortened_tokens + whole
    found.unchanged += not effects and not shortened
    found.requests += sum(day.calls for day in days)
    found.unpriced += sum(day.calls for cost, day in costs if cost is None)
    tokens = sum(day.prompt_tokens for day in days)
    found.tokens += tokens
    found.tokens_without += tokens + sum(lever.tokens for lever in effects.values())
    spent = -effects.get("summary_calls", Lever()).dollars
    billed = sum(known) + spent if known else None
    gained = sum(lever.dollars for lever in effects.values())
    found.add_dollars(billed, None if billed is None else billed + gained)
    found.add_levers(effects)


async def _add_proxied(
    found: _Sum, access: Access, session: Session, state: ProxiedSession, since: date | None
) -> None:
    if not state.requests and not state.sent:
        return
    spent = await _summaries(access, session, since)
    found.sessions += 1
    found.requests += state.requests
    found.unpriced += max(0, state.requests - state.priced)
    found.tokens += state.sent
    found.tokens_without += state.direct
    if state.priced:
        found.add_dollars(state.dollars_paid + spent, state.dollars_direct)
    found.add_levers(state.levers)
    if spent:
        found.add_levers({"summary_calls": Lever(dollars=-spent)})


async def _summaries(access: Access, session: Session, since: date | None) -> float:
    """The cost of model-written summaries of a session since a day."""
    calls = await access.store.read_calls(session.session_id, limit=MAX_CALLS)
    return sum(
        call.cost or 0.0
        for call in calls
        if call.purpose != "agent" and (call.created_at is None or _in(call.created_at.date().isoformat(), since))
    )


def _at(state: ProxiedSession, since: date | None) -> ProxiedSession | None:
    """The totals of a session when a day began; None if all of it came later."""
    if since is None:
        return None
    totals = next((totals for day, totals in sorted(state.days.items()) if _in(day, since)), None)
    if totals is not None:
        return ProxiedSession(**totals.model_dump())
    return state if state.days or state.last_at < datetime.combine(since, time(), UTC).timestamp() else None


def _in(day: str, since: date | None) -> bool:
    return since is None or day >= since.isoformat()


async def _all(access: Access, since: date | None) -> AsyncIterator[Session]:
    async for page in pages_of_sessions(access, without_agent=OUTPUTS_AGENT, by_message=True):
        for session in page:
            yield session
        if not _in(page[-1].updated_at.date().isoformat(), since):
            return


async def _family(access: Access, session: Session) -> AsyncIterator[Session]:
    """The session and those that it has started, at any depth."""
    waiting, seen = [session], {session.session_id}
    while waiting:
        current = waiting.pop()
        yield current
        children = await all_sessions(access, parent=current.session_id)
        waiting += [child for child in children if child.session_id not in seen]
        seen |= {child.session_id for child in children}
