"""What the edits of a session change in one of its requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from contextstash.formats.breakpoints import content_of
from contextstash.formats.request_edits import MessageEdit, SummaryOf
from contextstash.formats.request_text import RequestText, TextMessage, is_thinking
from contextstash.proxy.conversations import Conversation
from contextstash.proxy.other_parts import pinned_parts
from contextstash.service.requests.proxied import Pin, ProxiedEdits


def pinned_edits(
    conversation: Conversation, request: RequestText, edits: ProxiedEdits | None = None
) -> dict[int, MessageEdit]:
    """What the session's edits (by default those in force) change in this request, by message."""
    edits = edits or conversation.edits
    found: dict[int, MessageEdit] = {}
    for place in request.places(has_results) if edits.pins else ():
        edit = pinned_results(request.messages[place], edits.pins)
        if edit is not None:
            found[place] = edit
    for place, parts in pinned_parts(conversation, request, edits).items():
        found[place] = replace(found.get(place, NO_EDIT), parts=parts.texts)
    for place in stripped(conversation, request, edits):
        found[place] = replace(found.get(place, NO_EDIT), thinking_left_out=True)
    return found


NO_EDIT = MessageEdit({})


def has_results(message: TextMessage) -> bool:
    """Whether it holds results of tools."""
    return bool(message.results)


def thinks(message: TextMessage) -> bool:
    """Whether it holds the model's thinking."""
    return message.thinks


def thinking_size(message: TextMessage) -> int:
    """The bytes of its thinking that can be read. What the provider bills of it is not known: at least as much."""
    blocks = (block for block in content_of(message.native) if is_thinking(block))
    return sum(len(str(block.get("thinking") or "")) for block in blocks)


def pinned_results(message: TextMessage, pins: Mapping[str, Pin]) -> MessageEdit | None:
    """The placeholders of a message's results; None if it has none. It is the same object as long as the pins are."""
    return _pinned(message, pins)[0]


def saved_by_results(message: TextMessage, pins: Mapping[str, Pin]) -> int:
    """The tokens that these placeholders take less than what they stand for, by our count."""
    return _pinned(message, pins)[1]


def _pinned(message: TextMessage, pins: Mapping[str, Pin]) -> tuple[MessageEdit | None, int]:
    known: tuple[Mapping[str, Pin], tuple[MessageEdit | None, int]] | None = message.notes.get("pinned")
    if known is None or known[0] is not pins:
        shown = {
            result.path: pins[result.call_id]
            for result in message.results
            # The hash is compared too: some clients use an id for several calls.
            if result.call_id in pins and message.hashes.get(result.path) == pins[result.call_id].sha256
        }
        edit = MessageEdit({path: pin.text for path, pin in shown.items()}) if shown else None
        known = message.notes["pinned"] = pins, (edit, sum(pin.saved for pin in shown.values()))
    return known[1]


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


def pinned_summaries(conversation: Conversation, request: RequestText) -> list[SummaryOf]:
    """The summaries that stand for messages of this request: those of which it still has all messages."""
    if not conversation.edits.summaries:
        return []
    count = min(conversation.same_messages(request), len(conversation.positions))
    place_of = {seq: place for place, seq in enumerate(conversation.positions[:count])}
    found = []
    for summary in conversation.edits.summaries:
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
