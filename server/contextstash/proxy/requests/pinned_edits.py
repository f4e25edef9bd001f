"""The changes that a session's edits make in one of its requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from contextstash.formats.breakpoints import content_of
from contextstash.formats.request.edits import MessageEdit, SummaryOf
from contextstash.formats.request.text import RequestText, TextMessage, is_thinking
from contextstash.proxy.conversations import Conversation
from contextstash.proxy.requests.occurrences import Inherited, Naming, has_results, inherited, result_names
from contextstash.proxy.requests.other_parts import pinned_parts
from contextstash.service.requests.proxied import Pin, ProxiedEdits


def pinned_edits(
    conversation: Conversation, request: RequestText, edits: ProxiedEdits | None = None
) -> dict[int, MessageEdit]:
    """What the session's edits (by default those in force) change in this request, by message."""
    edits = edits or conversation.edits
    found: dict[int, MessageEdit] = {}
    name = result_names(conversation, request)
    for place in request.places(has_results) if edits.pins else ():
        edit = pinned_results(request.messages[place], edits.pins, place, name)
        if edit is not None:
            found[place] = edit
    for again in inherited(conversation, request, edits):
        found[again.place] = _with_pin(found.get(again.place, NO_EDIT), request.messages[again.place], again)
    for place, parts in pinned_parts(conversation, request, edits).items():
        found[place] = replace(found.get(place, NO_EDIT), parts=parts.texts)
    for place in stripped(conversation, request, edits):
        found[place] = replace(found.get(place, NO_EDIT), thinking_left_out=True)
    return found


NO_EDIT = MessageEdit({})


def thinks(message: TextMessage) -> bool:
    """Whether it holds the model's thinking."""
    return message.thinks


SIGNATURE_BYTES = 240
"""Of a signature beside the encrypted text: measured on 1,200 blocks of recorded sessions whose text is there. Their
signatures are 4/3 of the text, by their encoding (Base64), and 230 to 260 bytes longer."""


def thinking_size(message: TextMessage) -> int:
    """The bytes of its thinking. Newer models do not show the text: then the signature says how long it is."""
    found = 0
    for block in content_of(message.native):
        if is_thinking(block):
            sealed = len(str(block.get("signature") or block.get("data") or ""))
            found += max(len(str(block.get("thinking") or "")), 3 * max(0, sealed - SIGNATURE_BYTES) // 4)
    return found


def pinned_results(message: TextMessage, pins: Mapping[str, Pin], place: int, name: Naming) -> MessageEdit | None:
    """The placeholders of the results of message `place`; None if it has none. It is the same object as long as the
    pins are."""
    return _pinned(message, pins, place, name)[0]


def saved_by_results(conversation: Conversation, request: RequestText) -> dict[int, int]:
    """The tokens that the placeholders of results take less than what they stand for, by our count and by message."""
    edits, name = conversation.edits, result_names(conversation, request)
    found: dict[int, int] = {}
    for place in request.places(has_results) if edits.pins else ():
        found[place] = _pinned(request.messages[place], edits.pins, place, name)[1]
    for again in inherited(conversation, request, edits):
        found[again.place] = found.get(again.place, 0) + again.pin.saved
    return found


def _pinned(message: TextMessage, pins: Mapping[str, Pin], place: int, name: Naming) -> tuple[MessageEdit | None, int]:
    names = tuple(name(place, result.call_id) for result in message.results)
    known: tuple[Mapping[str, Pin], tuple[str, ...], tuple[MessageEdit | None, int]] | None
    known = message.notes.get("pinned")
    if known is None or known[0] is not pins or known[1] != names:
        shown = {
            result.path: pins[named]
            for result, named in zip(message.results, names, strict=True)
            if named in pins and message.hashes.get(result.path) == pins[named].sha256
        }
        edit = MessageEdit({path: pin.text for path, pin in shown.items()}) if shown else None
        known = message.notes["pinned"] = pins, names, (edit, sum(pin.saved for pin in shown.values()))
    return known[2]


def _with_pin(edit: MessageEdit, message: TextMessage, again: Inherited) -> MessageEdit:
    paths = {result.path: again.pin.text for result in message.results if result.call_id == again.call_id}
    return replace(edit, texts={**edit.texts, **paths})


def stripped(conversation: Conversation, request: RequestText, edits: ProxiedEdits) -> list[int]:
    """The messages whose thinking is left out."""
    if not edits.strips:
        return []
    recorded = min(conversation.same_messages(request), len(conversation.positions))
    return [
        place
        for place in request.places(thinks)
        if place < recorded
        and any(strip.first_seq <= conversation.positions[place] <= strip.last_seq for strip in edits.strips)
    ]


def pinned_summaries(
    conversation: Conversation, request: RequestText, edits: ProxiedEdits | None = None
) -> list[SummaryOf]:
    """The summaries that stand for messages of this request: those of which it still has all messages."""
    edits = edits or conversation.edits
    if not edits.summaries:
        return []
    count = min(conversation.same_messages(request), len(conversation.positions))
    place_of = {seq: place for place, seq in enumerate(conversation.positions[:count])}
    found = []
    for summary in edits.summaries:
        first, last = place_of.get(summary.first_seq), place_of.get(summary.last_seq)
        if first is not None and last is not None and last + 1 < len(request.messages):
            found.append(SummaryOf(first, last, summary.text))
    return joined(found)


def joined(summaries: Sequence[SummaryOf]) -> list[SummaryOf]:
    """The summaries; those of adjacent messages become one message, since two of the user may not follow each other."""
    found: list[SummaryOf] = []
    for summary in sorted(summaries, key=lambda each: each.first):
        if found and found[-1].last + 1 == summary.first:
            former = found.pop()
            summary = SummaryOf(former.first, summary.last, f"{former.text}\n\n{summary.text}")
        found.append(summary)
    return found
