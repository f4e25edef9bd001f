"""The edits of a session laid over one of its requests: what is sent in place of what the client wrote.

A placeholder stands for the first output with its id and text, wherever the client sends it. Some models count their
calls again from the start in each turn: a later output with the same id and text is shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from contextstash.messages.base import Path
from contextstash.messages.request import RequestText, SummaryOf, ToolResult, edited
from contextstash.proxy.conversations import AskedRequest, Conversation, Line
from contextstash.request.proxied import ProxiedEdits
from contextstash.window.models import reasoning_binding


@dataclass(frozen=True)
class Prepared:
    """A request ready to be sent. `cold` says that the provider's cache of the former request has expired, `changed`
    that it shows other edits than the former one."""

    conversation: Conversation
    asked: AskedRequest
    body: bytes
    cold: bool = False
    changed: bool = False

    @property
    def request(self) -> RequestText:
        """The request as the client wrote it."""
        return self.asked.request

    @property
    def edited(self) -> bool:
        """Whether it is sent in another way."""
        return self.body is not self.request.body

    def as_original(self) -> Prepared:
        """The same request without any edit."""
        return replace(self, body=self.request.body)


def outputs_of(messages: Line) -> Iterator[tuple[int, ToolResult]]:
    """The results that hold nothing but text, each with the place of its message; of equal ones the first."""
    seen = set[tuple[str, str]]()
    for place, message in enumerate(messages):
        for result in message.results:
            if result.text is not None and result.key not in seen:
                seen.add(result.key)
                yield place, result


@dataclass(frozen=True)
class Shown:
    """What edits change in a request: the texts of results, by message and path, and messages that become summaries."""

    texts: dict[int, dict[Path, str]]
    summaries: list[SummaryOf]

    def differs_from(self, other: Shown) -> int | None:
        """The first message that the two show differently; None if they are the same."""
        places = self.texts.keys() | other.texts.keys()
        changed = [place for place in places if self.texts.get(place) != other.texts.get(place)]
        changed += [summary.first for summary in self.summaries if summary not in other.summaries]
        return min(changed, default=None)


def shown(conversation: Conversation, request: RequestText, edits: ProxiedEdits) -> Shown:
    """What these edits change in a request."""
    texts: dict[int, dict[Path, str]] = {}
    for place, result in outputs_of(request.messages) if edits.pins else ():
        pin = edits.pins.get(result.key)
        if pin is not None:
            texts.setdefault(place, {})[result.path] = pin
    return Shown(texts, _summaries(conversation, request, edits))


def _summaries(conversation: Conversation, request: RequestText, edits: ProxiedEdits) -> list[SummaryOf]:
    """The summaries that stand for messages of a request: those of which it still has all messages. Those of adjacent
    messages become one message, since two of the user may not follow each other."""
    if not edits.summaries:
        return []
    place_of = {seq: place for place, seq in enumerate(conversation.places)}
    places = [(place_of.get(each.first_seq), place_of.get(each.last_seq), each.text) for each in edits.summaries]
    found = list[SummaryOf]()
    for first, last, text in sorted(each for each in places if None not in each):
        if first is None or last is None or last + 1 >= len(request.messages):
            continue
        if found and found[-1].last + 1 == first:
            former = found.pop()
            first, text = former.first, f"{former.text}\n\n{text}"
        found.append(SummaryOf(first, last, text))
    return found


def is_bound(conversation: Conversation, request: RequestText, first: int) -> bool:
    """Whether reasoning from this message on is bound to what stands before it, so that this must stay as it was sent:
    edits wait until the client compacts. A request that lets the API drop what does not match is bound too: its
    reasoning would be lost."""
    if reasoning_binding(conversation.state.model) != request.format:
        return False
    return any(message.reasons for message in request.messages[first:])


def laid_over(original: Prepared) -> Prepared:
    """The request with its session's edits; those of the former request if new ones would stand in front of bound
    reasoning. Raises JsonPositionError if a place is not as expected."""
    conversation, request = original.conversation, original.request
    now, before = (shown(conversation, request, edits) for edits in (conversation.edits, conversation.shown))
    first = now.differs_from(before)
    if first is not None and is_bound(conversation, request, first):
        conversation.edits, now, first = conversation.shown, before, None
    body = edited(request, now.texts, now.summaries)
    conversation.shown = conversation.edits
    return replace(original, body=body, changed=first is not None)
