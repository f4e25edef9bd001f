"""Reads what is needed of a session's view: all of it, or of one far larger than the window its newest part."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from contextstash.session.session_cache import KnownSession, SessionCache, Span
from contextstash.view.reach import MANY_WINDOWS, Beyond, smallest_placeholder, smallest_tokens
from contextstash.view.session_counters import request_budget
from contextstash.view.view import Entry, build_view, parts_of, results_of
from contextstash.window.settings import ContextSettings
from contextstash.window.token_counters import Counter
from contextstash_storage.records import Message, Part

ViewPart = tuple[tuple[Entry, ...], Beyond | None]
"""The entries of a view that were read, and what is beyond their reach."""

OUTPUT_PARTS = (Part.TOOL_RESULTS, Part.ARCHIVED)

READ_AT_ONCE = 500
"""Messages read at a time, from the newest on, until the reach is known."""


FEW_NEW = 50
"""Up to so many entries of a view are made on the event loop, which takes about half a millisecond."""


@dataclass(frozen=True)
class Scope:
    """How much of a session a use case needs. With `within_reach`, what can be in a request of `budget` tokens; None is
    the usable window. `after` is a position up to which nothing is needed then but the head. With `all_outputs` the
    outputs of hidden messages are read too."""

    bodies: bool = False
    all_outputs: bool = False
    within_reach: bool = False
    budget: int | None = None
    after: int = -1


WHOLE = Scope()
WITHIN_REACH = Scope(within_reach=True)
WITH_ALL_OUTPUTS = Scope(all_outputs=True)


async def read_view(
    cache: SessionCache, known: KnownSession, settings: ContextSettings, counter: Counter, scope: Scope, usable: int
) -> ViewPart:
    """The view of a session, as far as the scope needs it."""
    counters = known.session.counters
    spans = known.overlay.visible_ranges(counters.messages)
    budget = request_budget(counters, settings, counter, scope.budget or usable)
    limit = budget.counted(counters.view_tokens)
    if scope.within_reach and not settings.pin and counters.view_tokens > MANY_WINDOWS * max(0, limit):
        reader = _Reader(cache, known, smallest_placeholder(settings, counter), limit)
        part = await reader.part(spans, scope)
        if part is not None:
            return part
    if scope.bodies and (grown := cache.grown(known)) is not None:
        return grown, None
    messages = await cache.messages(known, spans, bodies=scope.bodies)
    entries = await _entries(known, messages, known.entries)
    if scope.bodies:
        cache.keep(known, messages, entries, whole=True)
    return entries, None


@dataclass(frozen=True)
class _Reader:
    """Reads the newest part of a view, until it takes more than `limit` tokens however much it is shortened. `made` are
    the entries that were made for that, by position."""

    cache: SessionCache
    known: KnownSession
    placeholder: int
    limit: int
    made: dict[int, Entry] = field(default_factory=dict)

    async def part(self, spans: Sequence[Span], scope: Scope) -> ViewPart | None:
        """The head and the part within reach; None if that is everything."""
        head = await self._head(spans, scope.bodies)
        start = head[-1].seq + 1 if head else spans[0][0] if spans else 0
        body = _clipped(spans, start)
        newest = await self._newest(body, scope)
        if not newest or newest[0].seq <= body[0][0]:
            return None
        messages = [*head, *newest]
        entries = await _entries(self.known, messages, self.made)
        beyond = await asyncio.to_thread(self._beyond, entries, body[0][0], newest[0].seq - 1)
        if beyond is not None and scope.bodies:
            self.cache.keep(self.known, messages, entries, whole=False)
        return None if beyond is None else (entries, beyond)

    async def _head(self, spans: Sequence[Span], bodies: bool) -> list[Message]:
        """The system messages at the head of the view."""
        head: list[Message] = []
        positions = (seq for first, last in spans for seq in range(first, last + 1))
        for seq in positions:
            [message] = await self.cache.messages(self.known, [(seq, seq)], bodies=bodies)
            if message.role != "system":
                break
            head.append(message)
        return head

    async def _newest(self, body: Sequence[Span], scope: Scope) -> list[Message]:
        """The messages that are needed, in order."""
        smallest = 0
        pieces: list[list[Message]] = []
        for first, last in reversed(_pieces(body)):
            if smallest > self.limit or last <= scope.after:
                break
            span = (max(first, scope.after + 1), last)
            pieces.append(await self.cache.messages(self.known, [span], bodies=scope.bodies))
            new = sum([message.seq not in self.known.entries for message in pieces[-1]])
            few = new < FEW_NEW
            smallest += self._smallest(pieces[-1]) if few else await asyncio.to_thread(self._smallest, pieces[-1])
        return [message for piece in reversed(pieces) for message in piece]

    def _smallest(self, messages: Sequence[Message]) -> int:
        """The fewest tokens that these messages take in the view."""
        entries = build_view(messages, self.known.overlay, self.known.entries)
        self.made.update({entry.first_seq: entry for entry in entries if entry.message})
        return sum([smallest_tokens(entry, self.placeholder) for entry in entries if entry.message])

    def _beyond(self, entries: Sequence[Entry], first: int, last: int) -> Beyond | None:
        """The part of the view beyond these entries, by the counters; None if the counters are not in step."""
        counters = self.known.session.counters
        read = parts_of(entries)
        parts = {part: counters.parts.get(part, 0) - read.get(part, 0) for part in (*counters.parts, *read)}
        messages = counters.view_messages - len(entries)
        results = counters.view_results - results_of(entries)
        # Earlier versions counted an output that is cut as archived: only the sum of the two is sure to be in step.
        outputs = sum(parts.get(part, 0) for part in OUTPUT_PARTS)
        others = [tokens for part, tokens in parts.items() if part not in OUTPUT_PARTS]
        if messages <= 0 or results < 0 or min(outputs, *others) < 0:
            return None
        return Beyond(first, last, messages, results, {part: tokens for part, tokens in parts.items() if tokens})


async def _entries(known: KnownSession, messages: Sequence[Message], made: Mapping[int, Entry]) -> tuple[Entry, ...]:
    """The view of these messages, some of whose entries are made; of many, with what they add up to, made in a worker
    thread."""
    if len(messages) - len(known.entries) < READ_AT_ONCE:
        return tuple(build_view(messages, known.overlay, made))

    def work() -> tuple[Entry, ...]:
        entries = tuple(build_view(messages, known.overlay, made))
        parts_of(entries)
        return entries

    return await asyncio.to_thread(work)


def _clipped(spans: Sequence[Span], start: int) -> list[Span]:
    """The spans from a position on."""
    return [(max(first, start), last) for first, last in spans if last >= start]


def _pieces(spans: Sequence[Span]) -> list[Span]:
    """The spans in pieces of READ_AT_ONCE messages, aligned at their ends."""
    pieces: list[Span] = []
    for first, last in spans:
        starts = range(last - READ_AT_ONCE + 1, first - READ_AT_ONCE, -READ_AT_ONCE)
        pieces += [(max(first, start), start + READ_AT_ONCE - 1) for start in reversed(starts)]
    return pieces
