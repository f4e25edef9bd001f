"""Names of the tool calls and results of a request. Some models count their calls anew in each turn, so that the id of
a call is no name: an occurrence is named by its id and, if that was used before, by its position in the session."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from contextstash.formats.request.text import RequestText, TextMessage
from contextstash.proxy.conversations import Conversation
from contextstash.service.requests.proxied import Pin, ProxiedEdits

Naming = Callable[[int, str], str]
"""The name of an occurrence, given the place of its message in the request and the id of its call."""


def has_results(message: TextMessage) -> bool:
    """Whether it holds results of tools."""
    return bool(message.results)


def result_names(conversation: Conversation, request: RequestText) -> Naming:
    """The names of the results, as the session's catalog has them; of one that is not recorded yet, a new name."""
    return _naming(conversation, request, calls=False)


def call_names(conversation: Conversation, request: RequestText) -> Naming:
    """The names of the calls."""
    return _naming(conversation, request, calls=True)


def _naming(conversation: Conversation, request: RequestText, *, calls: bool) -> Naming:
    catalog, positions = conversation.catalog, conversation.positions
    recorded = min(conversation.same_messages(request), len(positions))
    again = catalog.calls_again if calls else catalog.results_again
    followed = conversation.followed is not None

    def name(place: int, call_id: str) -> str:
        if place < recorded:
            return again.get((positions[place], call_id), call_id)
        # A client that records its session itself writes other messages than it sends, with the same ids.
        return call_id if followed and call_id not in catalog.reused else f"{call_id}@new {place}"

    return name


@dataclass(frozen=True, slots=True)
class Inherited:
    """A result that is sent again behind an earlier message that the client changed, and how it was shown before."""

    place: int
    call_id: str
    pin: Pin


def inherited(conversation: Conversation, request: RequestText, edits: ProxiedEdits) -> list[Inherited]:
    """The results that are not recorded where they stand now, but were shown as placeholders before. The newest results
    of a request are never among them: they are read for the first time."""
    messages = request.messages
    if not edits.pins or conversation.followed is not None:
        return []
    first = min(conversation.same_messages(request), len(conversation.positions))
    last = next((place for place in range(len(messages) - 1, -1, -1) if messages[place].is_models), -1)
    if first > last:
        return []
    found = [
        Inherited(place, result.call_id, pin)
        for place in request.places(has_results)
        if first <= place < last
        for result in messages[place].results
        if (pin := edits.pins.get(result.call_id)) is not None
        and result.call_id not in conversation.catalog.reused
        and messages[place].hashes.get(result.path) == pin.sha256
    ]
    sent = [result.call_id for place in request.places(has_results) for result in messages[place].results]
    return [each for each in found if sent.count(each.call_id) == 1]
