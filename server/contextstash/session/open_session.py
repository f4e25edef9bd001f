"""An open session: what is kept of one session in memory, and its view, read as far as a use case needs it.

Messages and edits are append-only, so that a known session is advanced by reading what is new. The newest known
message and edit are read again with it: if they differ, the session was deleted meanwhile, and another one, such as a
copy from another machine, has taken its place.

Of a view far larger than the window only the newest part is read: what is older can be in no request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from contextstash.messages.rules import KnownParts
from contextstash.view.session_snapshot import Beyond, Place, request_excess
from contextstash.view.view import (
    Entry,
    Overlay,
    build_view,
    edits_in_force,
    message_entries,
    parts_of,
    results_of,
    smallest_placeholder,
    smallest_tokens,
)
from contextstash.window.settings import ContextSettings
from contextstash.window.token_counters import Counter
from contextstash_storage.errors import SessionNotFoundError
from contextstash_storage.records import Edit, KnownPart, Message, Output, Request, Session, SessionNews, damaged
from contextstash_storage.store import SessionStore

MAX_TOKENS = 2_000_000
"""Size of the messages that are kept of one session: twice the largest window. A larger view is read from the database
at each call."""

READ_AT_ONCE = 500
"""Messages read at a time, from the newest on, until the reach is known; and whose bodies are held in memory."""

MANY_WINDOWS = 2
"""A view of at most so many times the budget is read whole. That takes about as long as the request itself."""

Span = tuple[int, int]


@dataclass(frozen=True)
class Scope:
    """How much of a session a use case needs. With `within_reach`, what can be in a request of `budget` tokens if its
    placeholders have their usual size; None is the usable window. `after` is a position up to which nothing is needed
    then but the head. With `all_outputs` the outputs of hidden messages are read too; without `view` only the
    edits are read."""

    view: bool = True
    bodies: bool = False
    all_outputs: bool = False
    within_reach: bool = False
    budget: int | None = None
    after: int = -1


WHOLE = Scope()
NO_VIEW = Scope(view=False)
WITHIN_REACH = Scope(within_reach=True)
WITH_ALL_OUTPUTS = Scope(all_outputs=True)


@dataclass(frozen=True)
class Known:
    """What is known of a session as of its state `session`: its newest request, all its edits, those in force, and some
    of its messages, their entries in the view and their outputs, by position. It is not changed but replaced, so that
    tasks cannot disturb each other."""

    session: Session
    request: Request | None
    edits: tuple[Edit, ...]
    overlay: Overlay
    messages: Mapping[int, Message] = field(default_factory=dict)
    entries: Mapping[int, Entry] = field(default_factory=dict)
    outputs: Mapping[int, tuple[Output, ...]] = field(default_factory=dict)

    @property
    def part(self) -> KnownPart:
        """The part that need not be read again: all but the newest message and edit."""
        return KnownPart(max(self.messages, default=None), max(0, len(self.edits) - 1))


class OpenSession:
    """A session in memory."""

    def __init__(self, store: SessionStore, session_id: str) -> None:
        self._store = store
        self._id = session_id
        self._known: Known | None = None
        self.parts = KnownParts()

    async def now(self) -> Known:
        """What is known of it as of now, advanced by what is new. Raises SessionNotFoundError."""
        known = self._known
        news = await self._store.read_news(self._id, KnownPart() if known is None else known.part)
        advanced = None if known is None else _advanced(known, news)
        if advanced is None:
            if news.known.edits:  # they are of another session
                news = await self._store.read_news(self._id, KnownPart())
            advanced = Known(news.session, news.request, news.edits, edits_in_force(news.edits))
        self._known = advanced
        return advanced

    async def messages(self, known: Known, spans: Iterable[Span], *, bodies: bool) -> list[Message]:
        """The messages from the first to the last position of each span. Without `bodies` they have a body only if it
        is known. The bodies must not be changed. Raises SessionNotFoundError if they are not there any more."""
        found: list[Message] = []
        for first, last in spans:
            missing = [seq for seq in range(first, last + 1) if seq not in known.messages]
            new: dict[int, Message] = {}
            if missing:
                read = await self._store.read_messages(self._id, first=missing[0], last=missing[-1], bodies=bodies)
                new = {message.seq: message for message in read}
                if len(read) <= missing[-1] - missing[0]:
                    raise SessionNotFoundError(f"The session '{self._id}' was deleted while it was read.")
            found += [new.get(seq) or known.messages[seq] for seq in range(first, last + 1)]
        return found

    async def outputs(self, known: Known, messages: Sequence[Message]) -> dict[Place, Output]:
        """The outputs of these messages, which are in order."""
        found = known.outputs
        missing = [each for each in messages if each.seq not in found]
        if missing:
            read = await self._store.read_outputs(self._id, first=missing[0].seq, last=missing[-1].seq)
            found = {**found, **outputs_by_message(missing, read)}
            current = self._known
            if current is not None and current.session == known.session:
                kept = {seq: outputs for seq, outputs in found.items() if seq in current.messages}
                self._known = replace(current, outputs=kept)
        return {(output.seq, output.block): output for each in messages for output in found[each.seq]}

    async def view(
        self, known: Known, settings: ContextSettings, counter: Counter, scope: Scope, usable: Callable[[], int]
    ) -> tuple[tuple[Entry, ...], Beyond]:
        """The view, as far as the scope needs it, and what is beyond its reach. `usable` is asked only if that is a
        part."""
        counters = known.session.counters
        spans = known.overlay.visible_ranges(counters.messages)
        if scope.within_reach and not settings.pin:
            excess = request_excess(counters, settings, counter, scope.budget or usable())
            limit = counters.view_tokens - excess
            if counters.view_tokens > MANY_WINDOWS * max(0, limit):
                placeholder = smallest_placeholder(settings, counter)
                part = await self._within_reach(known, spans, scope, limit, placeholder)
                entries = await _entries(known, part[0]) if part else ()
                beyond = _beyond(known, entries, part[1]) if part else Beyond()
                if part and beyond.messages:
                    self._keep(known, scope, part[0], entries)
                    return entries, beyond
        messages = await self.messages(known, spans, bodies=scope.bodies)
        entries = await _entries(known, messages)
        self._keep(known, scope, messages, entries)
        return entries, Beyond()

    async def _within_reach(
        self, known: Known, spans: Sequence[Span], scope: Scope, limit: int, placeholder: int
    ) -> tuple[list[Message], Span] | None:
        """The system messages at the head, and the newest messages, up to where they take more than `limit` tokens
        however much they are shortened; and where the messages between them are. None if that is everything."""
        head: list[Message] = []
        for seq in (seq for first, last in spans for seq in range(first, last + 1)):
            [message] = await self.messages(known, [(seq, seq)], bodies=scope.bodies)
            if message.role != "system":
                break
            head.append(message)
        start = head[-1].seq + 1 if head else 0
        body = [(max(first, start), last) for first, last in spans if last >= start]
        newest: list[Message] = []
        smallest = 0
        for first, last in reversed(_pieces(body)):
            if smallest > limit or last <= scope.after:
                break
            piece = await self.messages(known, [(max(first, scope.after + 1), last)], bodies=scope.bodies)
            shown = message_entries(piece, known.overlay, known.entries)
            smallest += sum([smallest_tokens(entry, placeholder) for entry in shown])
            newest = [*piece, *newest]
        if not newest or newest[0].seq <= body[0][0]:
            return None
        return [*head, *newest], (body[0][0], newest[0].seq - 1)

    def _keep(self, known: Known, scope: Scope, messages: Sequence[Message], view: Sequence[Entry]) -> None:
        """Keep these messages, if they have bodies, and their entries for the next call, in place of those that were
        kept before."""
        if scope.bodies:
            small = sum([message.tokens for message in messages]) <= MAX_TOKENS
            kept = {message.seq: message for message in messages} if small else {}
            entries = {entry.message.seq: entry for entry in view if entry.message} if small else {}
            self._known = replace(known, messages=kept, entries=entries)


def _advanced(known: Known, news: SessionNews) -> Known | None:
    """What is known, with what is new; None if it was of another session of this id."""
    before, after, first = known.session, news.session, news.known.first
    is_shorter = any(getattr(after.counters, each) < getattr(before.counters, each) for each in ("messages", "edits"))
    if before.created_at != after.created_at or is_shorter or news.edits[: len(known.edits[-1:])] != known.edits[-1:]:
        return None
    newest = {message.seq: message for message in news.messages}
    if first is not None and newest.pop(first, None) != known.messages[first]:
        return None
    outputs = {**known.outputs, **outputs_by_message(newest.values(), news.outputs)}
    messages = {**known.messages, **newest}
    advanced = replace(known, session=after, request=news.request, messages=messages, outputs=outputs)
    edits = (*known.edits[:-1], *news.edits)
    if len(edits) == len(known.edits):
        return advanced
    return replace(advanced, edits=edits, overlay=edits_in_force(edits), entries={})


async def _entries(known: Known, messages: Sequence[Message]) -> tuple[Entry, ...]:
    """The view of these messages, of many made in a worker thread."""
    if len(messages) - len(known.entries) < READ_AT_ONCE:
        return tuple(build_view(messages, known.overlay, known.entries))
    return tuple(await asyncio.to_thread(build_view, messages, known.overlay, known.entries))


def _beyond(known: Known, entries: Sequence[Entry], span: Span) -> Beyond:
    """The part of the view beyond these entries, by the counters; empty if the counters are not in step."""
    counters, read = known.session.counters, parts_of(entries)
    parts = {part: counters.parts.get(part, 0) - read.get(part, 0) for part in (*counters.parts, *read)}
    messages, results = counters.view_messages - len(entries), counters.view_results - results_of(entries)
    if messages <= 0 or results < 0 or min(parts.values()) < 0:
        return Beyond()
    return Beyond(*span, messages, results, {part: tokens for part, tokens in parts.items() if tokens})


def outputs_by_message(messages: Collection[Message], outputs: Iterable[Output]) -> dict[int, tuple[Output, ...]]:
    """The outputs of these messages, by position. Raises DamagedError if that of a result is missing."""
    found: dict[int, tuple[Output, ...]] = {message.seq: () for message in messages}
    for output in outputs:
        if output.seq in found:
            found[output.seq] += (output,)
    for message in messages:
        results = [place for place, block in enumerate(message.blocks) if block.type == "tool_result"]
        if results != [output.block for output in found[message.seq]]:
            raise damaged(f"an output of message {message.seq}")
    return found


def _pieces(spans: Sequence[Span]) -> list[Span]:
    """The spans in pieces of READ_AT_ONCE messages, aligned at their ends."""
    pieces: list[Span] = []
    for first, last in spans:
        starts = range(last - READ_AT_ONCE + 1, first - READ_AT_ONCE, -READ_AT_ONCE)
        pieces += [(max(first, start), start + READ_AT_ONCE - 1) for start in reversed(starts)]
    return pieces
