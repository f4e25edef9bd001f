"""Parts of a request other than tool outputs that may leave it: old thinking of the model, and if the settings say so,
inputs of old calls that write, and old images.

Some models get their thinking of earlier turns again with each request, where it is billed as input, though the turn
that it was for has ended. The API accepts requests without it, except within a tool loop. Source:
https://platform.claude.com/docs/en/build-with-claude/extended-thinking#preserving-thinking-blocks
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from contextstash.context.view.outputs_in_use import RECENT_CALLS, MadeCall
from contextstash.context.view.thinking_blocks import bills_old_thinking
from contextstash.formats.breakpoints import content_of
from contextstash.formats.large_parts import large_texts
from contextstash.formats.request.text import RequestText, TextMessage, is_thinking
from contextstash.proxy.options import PruneLimits
from contextstash.proxy.requests.drafts import Draft, Naming
from contextstash.proxy.requests.shown_edits import images_of, stripped, thinking_size
from contextstash.service.requests.proxied_parts import MessagePart


@dataclass(frozen=True, slots=True)
class OtherPart:
    """A part of message `place` of a request, with its tokens. `key` is its name among what may be pruned, `part` what
    is stored of it; None of thinking, which is not."""

    key: str
    place: int
    tokens: int
    part: MessagePart | None = None


def other_parts(draft: Draft, limits: PruneLimits) -> list[OtherPart]:
    """The inputs and images that are recorded, are shown, and may leave the request, in order."""
    images, shown = images_of(draft) if limits.images else {}, draft.conversation.edits.images
    name, found = draft.call_names(), list[OtherPart]()
    for place in sorted({*images, *(draft.request.places("inputs") if limits.inputs else ())}):
        found += _inputs(draft, place, name) if limits.inputs else ()
        for each in images.get(place, ()):
            if each.image.path is not None and each.at not in shown:
                key = f"image {each.at[0]} {each.at[1]}"
                found.append(OtherPart(key, place, each.tokens, MessagePart(*each.at, each.text)))
    return found


def _inputs(draft: Draft, place: int, name: Naming) -> Iterator[OtherPart]:
    """The inputs of the calls that have been answered."""
    catalog = draft.conversation.catalog
    for given in draft.messages[place].inputs:
        named = name(place, given.call_id)
        result, at = catalog.answers.get(named, ""), catalog.calls.get(named)
        answered = catalog.outputs.get(result)
        if answered is None or at is None or named in draft.conversation.edits.inputs:
            continue
        call = MadeCall(result, answered.output.tool, answered.output.argument)
        if call.writes:
            texts = large_texts(given.value)
            tokens = round(sum(len(text) for _, text in texts) * draft.conversation.tokens_per_byte)
            part = MessagePart(*at, given.text, call.tool, call.argument, len(texts))
            yield OtherPart(f"input of {result}", place, tokens, part)


def newest_inputs(calls: Sequence[MadeCall]) -> set[str]:
    """The keys of the inputs of the newest call that writes each file under edit: they show what the model last wrote
    there."""
    recent = calls[-RECENT_CALLS:]
    newest = {call.argument: f"input of {call.call_id}" for call in recent if call.writes and call.argument}
    return set(newest.values())


def old_thoughts(draft: Draft) -> list[OtherPart]:
    """The recorded thinking in front of the user's last message, as far as it is shown; none if the API does not bill
    it, or clears it itself."""
    conversation, request = draft.conversation, draft.request
    if request.format != "anthropic" or not bills_old_thinking(conversation.state.model) or _is_cleared(request):
        return []
    end, rate = min(turn_start(request), draft.recorded), conversation.tokens_per_byte
    left_out = set(stripped(draft, conversation.edits))
    return [
        OtherPart(f"thinking of message {place}", place, round(thinking_size(message) * rate))
        for place in request.places("thinks")
        if place < end and place not in left_out and _says_more(message := draft.messages[place])
    ]


def turn_start(request: RequestText) -> int:
    """The message with which the user's turn begins that the model works on: its last one without a tool's result."""
    asked = request.places(_is_asked)
    return asked[-1] if asked else 0


def _is_asked(message: TextMessage) -> bool:
    return message.native.get("role") == "user" and not message.results


def _says_more(message: TextMessage) -> bool:
    """Whether something is left of the message without its thinking: it may not be empty."""
    return not all(is_thinking(block) for block in content_of(message.native))


def _is_cleared(request: RequestText) -> bool:
    """Whether the request has the API clear thinking: it keeps all of it only if the request says so."""
    management = request.value("context_management")
    edits = management.get("edits") if isinstance(management, dict) else None
    return any(
        isinstance(edit, dict) and str(edit.get("type")).startswith("clear_thinking") and edit.get("keep") != "all"
        for edit in (edits if isinstance(edits, list) else ())
    )


def span_of(draft: Draft, keys: Iterable[str]) -> tuple[int, int] | None:
    """The first and the last position in the session of the thinking that a plan takes; None if it takes none."""
    chosen, positions = set(keys), draft.conversation.positions
    places = [thought.place for thought in old_thoughts(draft) if thought.key in chosen]
    return (positions[places[0]], positions[places[-1]]) if places else None
