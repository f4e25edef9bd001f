"""Drafts: requests as part of their conversations, with the names of their tool calls and results.

Some models count their calls again from the start in each turn, so that the id of a call is no name: an occurrence is
named by its id and, if that was used before, by its position in the session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from contextstash.context.view.prune_cost import CachePrices
from contextstash.formats.request.text import RequestText, TextMessage, ToolOutput, ToolResult
from contextstash.proxy.conversations import AskedRequest, Conversation
from contextstash.service.requests.proxied import Pin, ProxiedEdits

Naming = Callable[[int, str], str]
"""The name of an occurrence, given the place of its message in the request and the id of its call."""


@dataclass(frozen=True)
class Draft:
    """A request, and the conversation that it belongs to."""

    conversation: Conversation
    request: RequestText

    @property
    def messages(self) -> tuple[TextMessage, ...]:
        return self.request.messages

    @property
    def recorded(self) -> int:
        """How many messages the request begins with that are recorded, and of which it is known where."""
        return min(self.conversation.same_messages(self.request), len(self.conversation.positions))

    def with_results(self) -> Iterator[tuple[int, TextMessage]]:
        """The messages that hold results of tools, with their places."""
        return ((place, self.messages[place]) for place in self.request.places("results"))

    def results(self) -> Iterator[tuple[int, str, ToolResult]]:
        """The results of tools, each with the place of its message and its name."""
        name = self.result_names()
        for place, message in self.with_results():
            for result in message.results:
                yield place, name(place, result.call_id), result

    def outputs(self) -> Iterator[tuple[int, str, ToolOutput]]:
        """The same of those that hold nothing but text."""
        name = self.result_names()
        for place, message in self.with_results():
            for output in message.outputs:
                yield place, name(place, output.call_id), output

    def result_names(self) -> Naming:
        """The names of the results, as the session's catalog has them; of one that is not recorded yet, a new name."""
        return self._naming(self.conversation.catalog.results_again, self.conversation.edits.pins)

    def call_names(self) -> Naming:
        """The names of the calls."""
        return self._naming(self.conversation.catalog.calls_again, self.conversation.edits.inputs)

    def _naming(self, again: Mapping[tuple[int, str], str], pins: Mapping[str, Pin]) -> Naming:
        conversation, recorded = self.conversation, self.recorded
        catalog, positions, followed = conversation.catalog, conversation.positions, conversation.followed is not None
        first, unread = self._first_results() if followed else {}, self.last_reply + 1

        def name(place: int, call_id: str) -> str:
            if place < recorded:
                return again.get((positions[place], call_id), call_id)
            # A client that records its session itself writes other messages than it sends, with the same ids. An id is
            # used again if a result with it stands before, and if what the model has not read yet was pruned before.
            used = call_id in catalog.reused or place > first.get(call_id, place)
            used = used or (place >= unread and call_id in pins and not conversation.settings.first_cut_tokens)
            return call_id if followed and not used else f"{call_id}@new {place}"

        return name

    def _first_results(self) -> dict[str, int]:
        """The first message with a result of each call id."""
        found: dict[str, int] = {}
        for place, message in self.with_results():
            for result in message.results:
                found.setdefault(result.call_id, place)
        return found

    @property
    def last_reply(self) -> int:
        """The place of the model's last message; -1 if there is none."""
        replies = self.request.places("is_models")
        return replies[-1] if replies else -1


@dataclass(frozen=True, slots=True)
class Inherited:
    """A result that is sent again behind an earlier message that the client changed, and how it was shown before."""

    place: int
    call_id: str
    pin: Pin


def inherited(draft: Draft, edits: ProxiedEdits) -> list[Inherited]:
    """The results that are not recorded where they stand now, but were shown as placeholders before. The newest results
    of a request are never among them: they are read for the first time."""
    conversation, first, last = draft.conversation, draft.recorded, draft.last_reply
    if not edits.pins or conversation.followed is not None or first >= last:
        return []
    found = [
        Inherited(place, result.call_id, pin)
        for place, message in draft.with_results()
        if first <= place < last
        for result in message.results
        if (pin := edits.pins.get(result.call_id)) is not None
        and result.call_id not in conversation.catalog.reused
        and message.hashes.get(result.path) == pin.sha256
    ]
    sent = [result.call_id for _, message in draft.with_results() for result in message.results] if found else []
    return [each for each in found if sent.count(each.call_id) == 1]


@dataclass(frozen=True)
class Prepared(Draft):
    """A request ready to be sent. `removed` are the tokens that the edits take out, by lever; `pruned` says how many
    outputs were pruned for this request; `cold` whether the provider's cache had expired; `still_cached` how many
    tokens the cache holds in spite of edits that the former request did not show, None if there are none; `former` are
    the edits that one did show. `clears` says that the body asks the provider to clear old results."""

    body: bytes
    prices: CachePrices
    started: float
    removed: Mapping[str, int] = field(default_factory=dict)
    pruned: int = 0
    cold: bool = False
    still_cached: int | None = None
    asked: AskedRequest | None = None
    former: ProxiedEdits = field(default_factory=ProxiedEdits)
    clears: bool = False

    @property
    def edited(self) -> bool:
        return self.body is not self.request.body

    @property
    def left_behind(self) -> bool:
        """Whether another request went on from the same messages, and the conversation with it."""
        return self.asked is not None and self.asked.left_behind

    @property
    def saved(self) -> int:
        """The tokens that the edits take out."""
        return max(0, sum(self.removed.values()))

    def as_original(self) -> Prepared:
        """The same request without any edit."""
        return replace(self, body=self.request.body, removed={}, pruned=0, clears=False)
