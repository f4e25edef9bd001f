"""Parts of a request other than tool outputs that may leave it if the settings say so: inputs of old calls that write,
and old images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from contextstash.context.view.outputs_in_use import RECENT_CALLS, MadeCall
from contextstash.formats.json_positions import Path
from contextstash.formats.large_parts import Image, large_texts
from contextstash.formats.request.text import RequestText, TextMessage, output_sha256
from contextstash.proxy.conversations import Conversation
from contextstash.proxy.part_kinds import PartKinds
from contextstash.proxy.requests.occurrences import Naming, call_names
from contextstash.service.requests.proxied import Pin, ProxiedEdits
from contextstash.service.requests.proxied_parts import MessagePart


@dataclass(frozen=True, slots=True)
class OtherPart:
    """A part of message `place` of a request, with its tokens. `key` is its name among what may be pruned, `part` what
    is stored of it."""

    key: str
    place: int
    tokens: int
    part: MessagePart


def other_parts(conversation: Conversation, request: RequestText, kinds: PartKinds) -> dict[int, list[OtherPart]]:
    """The parts that are recorded, are shown, and may leave the request, in order, by message."""
    found: dict[int, list[OtherPart]] = {}
    places = _positions(conversation, request) if kinds.images else {}
    name = call_names(conversation, request)
    for place, message in enumerate(request.messages if kinds.inputs or places else ()):
        parts = list(_inputs(conversation, message, place, name)) if kinds.inputs and message.is_models else []
        if place in places:
            parts += _images(conversation, message, place, places[place])
        if parts:
            found[place] = parts
    return found


def _positions(conversation: Conversation, request: RequestText) -> dict[int, int]:
    """Where the messages with images are in the session, as far as they are recorded."""
    count = min(conversation.same_messages(request), len(conversation.positions))
    return {place: conversation.positions[place] for place in range(count) if request.messages[place].images}


def _inputs(conversation: Conversation, message: TextMessage, place: int, name: Naming) -> Iterator[OtherPart]:
    """The inputs of the calls that have been answered."""
    catalog = conversation.catalog
    for given in message.inputs:
        named = name(place, given.call_id)
        result, at = catalog.answers.get(named, ""), catalog.calls.get(named)
        answered = catalog.outputs.get(result)
        if answered is None or at is None or named in conversation.edits.inputs:
            continue
        call = MadeCall(result, answered.output.tool, answered.output.argument)
        if call.writes:
            texts = large_texts(given.value)
            tokens = round(sum(len(text) for _, text in texts) * conversation.tokens_per_byte)
            part = MessagePart(*at, given.text, call.tool, call.argument, len(texts))
            yield OtherPart(f"input of {result}", place, tokens, part)


def _images(conversation: Conversation, message: TextMessage, place: int, seq: int) -> Iterator[OtherPart]:
    for block, image, tokens in _recorded_images(conversation, message, seq):
        if (seq, block) not in conversation.edits.images:
            part = MessagePart(seq, block, image_text(image))
            yield OtherPart(f"image {seq} {block}", place, tokens, part)


def _recorded_images(conversation: Conversation, message: TextMessage, seq: int) -> list[tuple[int, Image, int]]:
    """The images of a message with the blocks that they are in message `seq` of the session, and with their tokens;
    none if the two do not agree."""
    blocks = conversation.catalog.images.get(seq, {})
    if len(blocks) != len(message.images):
        return []
    pairs = zip(blocks.items(), message.images, strict=True)
    return [(block, image, tokens) for (block, tokens), image in pairs if image.path is not None]


def image_text(image: Image) -> str:
    """What is stored of an image beside the message that holds it."""
    return f"An image (SHA-256 {image.sha256}). restore_outputs with this handle shows it again in the next request."


@dataclass(frozen=True, slots=True)
class PinnedParts:
    """The placeholders of a message's other parts, by their paths. `images` are the tokens of the images among them,
    which the provider counts by their pixels, and `saved` the tokens that the others take less, by our count."""

    texts: Mapping[Path, str]
    images: int
    saved: int


def pinned_parts(conversation: Conversation, request: RequestText, edits: ProxiedEdits) -> dict[int, PinnedParts]:
    """What the session's edits show in place of such parts, by message."""
    found: dict[int, PinnedParts] = {}
    places = _positions(conversation, request) if edits.images else {}
    name = call_names(conversation, request)
    for place, message in enumerate(request.messages if edits.inputs or places else ()):
        inputs = _pinned_inputs(message, edits, place, name) if edits.inputs and message.is_models else {}
        texts = {path: pin.text for path, pin in inputs.items()}
        images = 0
        for block, image, tokens in _recorded_images(conversation, message, places[place]) if place in places else ():
            pin = edits.images.get((places[place], block))
            if pin is not None and image.path is not None and pin.sha256 == output_sha256(image_text(image)):
                texts[image.path] = pin.text
                images += tokens
        if texts:
            found[place] = PinnedParts(texts, images, sum(pin.saved for pin in inputs.values()))
    return found


def _pinned_inputs(message: TextMessage, edits: ProxiedEdits, place: int, name: Naming) -> dict[Path, Pin]:
    return {
        given.path: pin
        for given in message.inputs
        if (pin := edits.inputs.get(name(place, given.call_id))) is not None and pin.sha256 == output_sha256(given.text)
    }


def newest_inputs(calls: Sequence[MadeCall]) -> set[str]:
    """The keys of the inputs of the newest call that writes each file under edit: they show what the model last wrote
    there."""
    recent = calls[-RECENT_CALLS:]
    newest = {call.argument: f"input of {call.call_id}" for call in recent if call.writes and call.argument}
    return set(newest.values())
