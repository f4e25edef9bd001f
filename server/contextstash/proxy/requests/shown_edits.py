"""What a session's edits change in one of its requests, and how large the request is then."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import NamedTuple

from contextstash.formats.breakpoints import content_of
from contextstash.formats.large_parts import Image
from contextstash.formats.request.edits import MessageEdit, SummaryOf
from contextstash.formats.request.text import RequestText, TextMessage, is_thinking, output_sha256
from contextstash.proxy.requests.drafts import Draft, inherited
from contextstash.service.requests.proxied import Pin, ProxiedEdits

SIGNATURE_BYTES = 240
"""Of a signature beside the encrypted text: measured on 1,200 blocks of recorded sessions whose text is there. Their
signatures are 4/3 of the text, by their encoding (Base64), and 230 to 260 bytes longer."""

PLACEHOLDER_TOKENS = 70
"""What a placeholder takes on average, measured on recorded sessions; the exact one is made when it is needed."""


class ShownMessage(NamedTuple):
    """What the edits change in one message. `hidden` are the bytes of each recorded text that it does not show;
    `outputs` and `inputs` are the tokens that the placeholders of either take less, by our count, and `images` those of
    the images, which the provider counts by their pixels."""

    edit: MessageEdit
    hidden: tuple[int, ...] = ()
    outputs: int = 0
    inputs: int = 0
    images: int = 0


UNCHANGED = ShownMessage(MessageEdit({}))

Shown = Mapping[int, ShownMessage]
"""The messages that the edits change, by their places."""


def shown_messages(draft: Draft, edits: ProxiedEdits | None = None) -> dict[int, ShownMessage]:
    """What the session's edits (by default those in force) change in this request."""
    edits = edits or draft.conversation.edits
    found: dict[int, ShownMessage] = {}
    if edits.pins:
        name = draft.result_names()
        for place, message in draft.with_results():
            shown = _with_pins(message, edits.pins, [name(place, result.call_id) for result in message.results])
            if shown.hidden:
                found[place] = shown
    for again in inherited(draft, edits):
        before, message = found.get(again.place, UNCHANGED), draft.messages[again.place]
        paths = [result.path for result in message.results if result.call_id == again.call_id]
        edit = replace(before.edit, texts={**before.edit.texts, **dict.fromkeys(paths, again.pin.text)})
        found[again.place] = before._replace(edit=edit, outputs=before.outputs + again.pin.saved)
    for place, parts in _other_parts(draft, edits):
        before = found.get(place, UNCHANGED)
        edit = replace(before.edit, parts=parts.edit.parts)
        found[place] = parts._replace(edit=edit, hidden=before.hidden + parts.hidden, outputs=before.outputs)
    for place in stripped(draft, edits):
        before = found.get(place, UNCHANGED)
        found[place] = before._replace(edit=replace(before.edit, thinking_left_out=True))
    return found


def _with_pins(message: TextMessage, pins: Mapping[str, Pin], names: Sequence[str]) -> ShownMessage:
    """The placeholders of results with these names. It is the same object as long as the pins are."""
    known: tuple[Mapping[str, Pin], Sequence[str], ShownMessage] | None = message.notes.get("pinned")
    if known is None or known[0] is not pins or known[1] != names:
        shown = {
            result.path: pins[named]
            for result, named in zip(message.results, names, strict=True)
            if named in pins and message.hashes.get(result.path) == pins[named].sha256
        }
        edit = MessageEdit({path: pin.text for path, pin in shown.items()})
        hidden = tuple(message.sizes.get(path, 0) for path in shown)
        found = ShownMessage(edit, hidden, sum(pin.saved for pin in shown.values()))
        known = message.notes["pinned"] = pins, names, found
    return known[2]


def _other_parts(draft: Draft, edits: ProxiedEdits) -> Iterator[tuple[int, ShownMessage]]:
    """The placeholders of inputs and images, by message."""
    name, images = draft.call_names(), images_of(draft) if edits.images else {}
    places = {*images, *(draft.request.places("inputs") if edits.inputs else ())}
    for place in sorted(places):
        message = draft.messages[place]
        inputs = {
            given.path: pin
            for given in message.inputs
            if (pin := edits.inputs.get(name(place, given.call_id))) is not None
            and pin.sha256 == output_sha256(given.text)
        }
        texts, tokens = {path: pin.text for path, pin in inputs.items()}, 0
        for each in images.get(place, ()):
            pin = edits.images.get(each.at)
            if pin is not None and each.image.path is not None and pin.sha256 == output_sha256(each.text):
                texts[each.image.path] = pin.text
                tokens += each.tokens
        if texts:
            hidden = tuple(len(given.text) for given in message.inputs if given.path in inputs)
            saved = sum(pin.saved for pin in inputs.values())
            yield place, ShownMessage(MessageEdit({}, parts=texts), hidden, inputs=saved, images=tokens)


class RecordedImage(NamedTuple):
    """An image of a request, the message and the block that it is in the session, and its tokens."""

    image: Image
    at: tuple[int, int]
    tokens: int

    @property
    def text(self) -> str:
        """What is stored of it in addition to the message that holds it."""
        hint = "restore_outputs with this handle shows it again in the next request."
        return f"An image (SHA-256 {self.image.sha256}). {hint}"


def images_of(draft: Draft) -> dict[int, list[RecordedImage]]:
    """The recorded images, by message; none of a message that the session holds with another number of them."""
    found: dict[int, list[RecordedImage]] = {}
    conversation, recorded = draft.conversation, draft.recorded
    for place in draft.request.places("images"):
        if place >= recorded:
            break
        seq, images = conversation.positions[place], draft.messages[place].images
        blocks = conversation.catalog.images.get(seq, {})
        if len(blocks) == len(images):
            pairs = zip(blocks.items(), images, strict=True)
            found[place] = [RecordedImage(image, (seq, at), tokens) for (at, tokens), image in pairs]
    return found


def stripped(draft: Draft, edits: ProxiedEdits) -> list[int]:
    """The messages whose thinking is left out."""
    if not edits.strips:
        return []
    recorded, positions = draft.recorded, draft.conversation.positions
    return [
        place
        for place in draft.request.places("thinks")
        if place < recorded and any(strip.first_seq <= positions[place] <= strip.last_seq for strip in edits.strips)
    ]


def thinking_size(message: TextMessage) -> int:
    """The bytes of its thinking. Newer models do not show the text: then the signature says how long it is."""
    found = 0
    for block in content_of(message.native):
        if is_thinking(block):
            sealed = len(str(block.get("signature") or block.get("data") or ""))
            found += max(len(str(block.get("thinking") or "")), 3 * max(0, sealed - SIGNATURE_BYTES) // 4)
    return found


def shown_summaries(draft: Draft, edits: ProxiedEdits | None = None) -> list[SummaryOf]:
    """The summaries that stand for messages of this request: those of which it still has all messages. Those of
    adjacent messages become one message, since two of the user may not follow each other."""
    edits, found = edits or draft.conversation.edits, list[SummaryOf]()
    if not edits.summaries:
        return []
    place_of = {seq: place for place, seq in enumerate(draft.conversation.positions[: draft.recorded])}
    places = [(place_of.get(each.first_seq), place_of.get(each.last_seq), each.text) for each in edits.summaries]
    known = [(first, last, text) for first, last, text in places if first is not None and last is not None]
    for first, last, text in sorted(known):
        if last + 1 >= len(draft.messages):
            continue
        if found and found[-1].last + 1 == first:
            former = found.pop()
            first, text = former.first, f"{former.text}\n\n{text}"
        found.append(SummaryOf(first, last, text))
    return found


@dataclass(frozen=True, slots=True)
class ShownEdits:
    """How a request is shown: with the edits in force, and with those of the former request. `first` is the first
    message that the two show differently; behind the last one if they are the same."""

    now: Shown
    former: Shown
    summaries: Sequence[SummaryOf]
    first: int


def shown_edits(draft: Draft) -> ShownEdits:
    """The edits of a request, and where they differ from those of the former one."""
    now, summaries, end = shown_messages(draft), shown_summaries(draft), len(draft.messages)
    if draft.conversation.edits is draft.conversation.shown:
        return ShownEdits(now, now, summaries, end)
    former = shown_messages(draft, draft.conversation.shown)
    places = former.keys() | now.keys()
    changed = [at for at in places if former.get(at, UNCHANGED).edit != now.get(at, UNCHANGED).edit]
    known = shown_summaries(draft, draft.conversation.shown)
    changed += [summary.first for summary in summaries if summary not in known]
    return ShownEdits(now, former, summaries, min(changed, default=end))


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


def shown_sizes(draft: Draft, former: ProxiedEdits | None = None) -> ShownSizes:
    """The sizes with the placeholders. What the provider counted of the last request, which showed the `former` edits,
    and its bytes do not explain stands in front of all."""
    conversation = draft.conversation
    rate, last = conversation.tokens_per_byte, conversation.request
    unseen = size_before(draft.request, 0) * rate
    if last is not None and conversation.state.prompt:
        hidden = _hidden(Draft(conversation, last), former or conversation.shown)
        shown = ShownSizes(last, rate, *hidden, 0.0)
        unseen += conversation.state.prompt - shown.of_messages() - size_before(last, 0) * rate
    return ShownSizes(draft.request, rate, *_hidden(draft, conversation.edits), unseen)


def _hidden(draft: Draft, edits: ProxiedEdits) -> tuple[list[int], list[float]]:
    """The messages of which something is hidden; the tokens hidden in front of each, and at last in all."""
    shown, rate = sorted(shown_messages(draft, edits).items()), draft.conversation.tokens_per_byte
    tokens = []
    for place, each in shown:
        thinking = thinking_size(draft.messages[place]) if each.edit.thinking_left_out else 0
        tokens.append(sum(max(0.0, size * rate - PLACEHOLDER_TOKENS) for size in each.hidden) + thinking * rate)
    return [place for place, _ in shown], list(accumulate(tokens, initial=0.0))
