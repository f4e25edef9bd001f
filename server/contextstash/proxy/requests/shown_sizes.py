"""The size of a request, and of the tokens in front of each message as it is shown."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from contextstash.formats.request.text import RequestText, TextMessage
from contextstash.proxy.conversations import Conversation
from contextstash.proxy.requests.occurrences import call_names, has_results, result_names
from contextstash.proxy.requests.pinned_edits import pinned_results, stripped, thinking_size
from contextstash.service.requests.proxied import ProxiedEdits

PLACEHOLDER_TOKENS = 70
"""What a placeholder takes on average, measured on recorded sessions; the exact one is made when it is needed."""


def size_before(request: RequestText, place: int) -> int:
    """Bytes of the request in front of a message, in the order in which the provider caches them: tools, system prompt,
    messages."""
    around = [request.fields[key] for key in ("system", "tools", "instructions") if key in request.fields]
    return sum(span.end - span.start for span in around) + request.spans[place].start - request.spans[0].start


def size_of(request: RequestText) -> int:
    """Bytes of what the provider counts as the prompt."""
    return size_before(request, 0) + request.spans[-1].end - request.spans[0].start


@dataclass(frozen=True, slots=True)
class ShownSizes:
    """The tokens of a request in which placeholders stand for some of its parts: `hidden[i]` are those that they hide
    in the first `i` of `places`. `unseen` are the tokens in front of all that the messages' bytes do not explain."""

    request: RequestText
    tokens_per_byte: float
    places: Sequence[int]
    hidden: Sequence[float]
    unseen: float

    def before(self, places: Sequence[int]) -> list[int]:
        """The tokens in front of each of these messages; behind the last one, those of the whole request."""
        rate, hidden, spans = self.tokens_per_byte, self.hidden, self.request.spans
        unseen, count = self.unseen - spans[0].start * rate, len(spans)
        starts = (spans[at].start if at < count else spans[-1].end for at in places)
        return [
            max(0, round(unseen + start * rate - hidden[bisect_left(self.places, at)]))
            for at, start in zip(places, starts, strict=True)
        ]

    def hidden_within(self, tokens: int) -> float:
        """Which share of all that is hidden stands within the first `tokens` tokens as they are shown."""
        if not self.places or not self.hidden[-1]:
            return 0.0
        return self.hidden[bisect_left(self.before(self.places), tokens)] / self.hidden[-1]

    def of_messages(self) -> float:
        """The tokens of all messages."""
        size = self.request.spans[-1].end - self.request.spans[0].start
        return size * self.tokens_per_byte - self.hidden[-1]


def shown_sizes(conversation: Conversation, request: RequestText, former: ProxiedEdits | None = None) -> ShownSizes:
    """The sizes with the pinned placeholders. What the provider counted of the last request, which showed the `former`
    edits, and its bytes do not explain stands in front of all."""
    rate, last = conversation.tokens_per_byte, conversation.request
    unseen = size_before(request, 0) * rate
    if last is not None and conversation.state.prompt:
        shown = ShownSizes(last, rate, *_hidden(conversation, last, former or conversation.shown), 0.0)
        unseen += conversation.state.prompt - shown.of_messages() - size_before(last, 0) * rate
    return ShownSizes(request, rate, *_hidden(conversation, request, conversation.edits), unseen)


def _hidden(conversation: Conversation, request: RequestText, edits: ProxiedEdits) -> tuple[list[int], list[float]]:
    """The messages of which something is hidden; the tokens hidden in front of each, and at last in all."""
    sizes: dict[int, list[int]] = {}
    name, call_name = result_names(conversation, request), call_names(conversation, request)
    for place in request.places(has_results) if edits.pins else ():
        message = request.messages[place]
        if (edit := pinned_results(message, edits.pins, place, name)) is not None:
            sizes[place] = [message.sizes.get(path, 0) for path in edit.texts]
    for place in request.places(_has_large_inputs) if edits.inputs else ():
        inputs = request.messages[place].inputs
        texts = [len(given.text) for given in inputs if call_name(place, given.call_id) in edits.inputs]
        sizes[place] = sizes.get(place, []) + texts
    thoughts = {place: thinking_size(request.messages[place]) for place in stripped(conversation, request, edits)}
    rate, places = conversation.tokens_per_byte, sorted(sizes.keys() | thoughts.keys())
    tokens = [
        sum(max(0.0, size * rate - PLACEHOLDER_TOKENS) for size in sizes.get(place, ())) + thoughts.get(place, 0) * rate
        for place in places
    ]
    return places, list(accumulate(tokens, initial=0.0))


def _has_large_inputs(message: TextMessage) -> bool:
    return bool(message.inputs)
