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
    pins = conversation.edits.inputs if calls else conversation.edits.pins
    first, unread = _first_results(request) if followed else {}, _last_reply(request) + 1

    def name(place: int, call_id: str) -> str:
        if place < recorded:
            return again.get((positions[place], call_id), call_id)
        # A client that records its session itself writes other messages than it sends, with the same ids. An id is
        # used again if a result with it stands before, and if what the model has not read yet was pruned before.
        used = call_id in catalog.reused or place > first.get(call_id, place)
        used = used or (place >= unread and call_id in pins and not conversation.first_cut)
        return call_id if followed and not used else f"{call_id}@new {place}"

    return name


def _first_results(request: RequestText) -> dict[str, int]:
    """The first message with a result of each call id."""
    found: dict[str, int] = {}
    for place in request.places(has_results):
        for result in request.messages[place].results:
            found.setdefault(result.call_id, place)
    return found


def _last_reply(request: RequestText) -> int:
    """The place of the model's last message; -1 if there is none."""
    return next((at for at in range(len(request.messages) - 1, -1, -1) if request.messages[at].is_models), -1)


@dataclass(frozen=True, slots=True)
class Inherited:
    """A result that is sent again behind an earlier message that the client changed, and how it was shown before."""

    place: int
    call_id: str
    pin: Pin


def inherited(conversation: Conversation, request: RequestText, edits: ProxiedEdits) -> list[Inherited]:
    """The results that are not recorded where they stand now, but were shown as placeholders before. The newest results
    of a request are never among them: they are read for the first time."""
    messages, last = request.messages, _last_reply(request)
    if not edits.pins or conversation.followed is not None:
        return []
    first = min(conversation.same_messages(request), len(conversation.positions))
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
