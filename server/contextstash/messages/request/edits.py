"""Edits of a request's text: tool results replaced, thinking left out, messages replaced, and not a byte more."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contextstash.messages.base import Path
from contextstash.messages.breakpoints import BREAKPOINT_KEY, content_of
from contextstash.messages.detection import get_format
from contextstash.messages.json_positions import Span, Splice, dumped, elements, spliced, without
from contextstash.messages.request.text import RequestText, TextMessage, ToolResult, is_thinking


@dataclass(frozen=True)
class MessageEdit:
    """The changes of one message: `texts` for the results at these paths, and whether its thinking is left out."""

    texts: Mapping[Path, str]
    thinking_left_out: bool = False


@dataclass(frozen=True, slots=True)
class SummaryOf:
    """The messages `first` to `last` (included) are sent as one message of the user with this text."""

    first: int
    last: int
    text: str


def edited(
    request: RequestText,
    edits: Mapping[int, MessageEdit],
    summaries: Sequence[SummaryOf] = (),
) -> tuple[bytes, int]:
    """The body with these edits, and the position of the first byte that differs. Raises JsonPositionError if a place
    is not what the edit expects."""
    hidden = {place for summary in summaries for place in range(summary.first, summary.last + 1)}
    splices = [splice for summary in summaries for splice in _summary(request, summary)]
    for place, edit in edits.items():
        if place not in hidden:
            start = request.spans[place].start
            splices += [_moved(splice, start) for splice in _known_splices(request.messages[place], edit)]
    if not splices:
        return request.body, len(request.body)
    return spliced(request.body, splices), min(splice.span.start for splice in splices)


def _moved(splice: Splice, by: int) -> Splice:
    return Splice(Span(splice.span.start + by, splice.span.end + by), splice.replacement)


def _summary(request: RequestText, summary: SummaryOf) -> list[Splice]:
    """The summary as a message of the user, or as the beginning of the user's message that follows: Anthropic's
    messages alternate."""
    start, end = request.spans[summary.first].start, request.spans[summary.last].end
    following = summary.last + 1
    if request.format == "anthropic" and request.messages[following].native.get("role") == "user":
        after = request.spans[following]
        inserted = _with_text(request.messages[following], summary.text)
        return [Splice(Span(start, after.start), b""), *(_moved(splice, after.start) for splice in inserted)]
    return [Splice(Span(start, end), dumped(get_format(request.format).user_message(summary.text)))]


def _with_text(message: TextMessage, text: str) -> list[Splice]:
    """A text block in front of a message's content, which keeps its bytes."""
    content, block = message.span(("content",)), dumped({"type": "text", "text": text})
    if message.raw[content.start : content.start + 1] == b"[":
        at = content.start + 1
        return [Splice(Span(at, at), block + b"," if content_of(message.native) else block)]
    before, after = Span(content.start, content.start), Span(content.end, content.end)
    return [Splice(before, b"[" + block + b',{"type":"text","text":'), Splice(after, b"}]")]


def _known_splices(message: TextMessage, edit: MessageEdit) -> list[Splice]:
    """The splices of one message, as they were for the request before if that had the same edit."""
    known: tuple[MessageEdit, list[Splice]] | None = message.notes.get("splices")
    if known is None or known[0] is not edit:
        known = message.notes["splices"] = edit, message_splices(message, edit)
    return known[1]


def message_splices(message: TextMessage, edit: MessageEdit) -> list[Splice]:
    """The splices of one message, by positions in its own bytes."""
    splices: list[Splice] = []
    for result in message.results:
        if tuple(result.path) in edit.texts:
            splices += _replaced(message, result, edit.texts[tuple(result.path)])
    if edit.thinking_left_out:
        splices += _without_thinking(message)
    return splices


def _replaced(message: TextMessage, result: ToolResult, text: str) -> list[Splice]:
    """The result's content as this text, in the shape that it had. A breakpoint inside the content goes to the result
    itself, where the prompt cache ends at the same place; one that is on the result stays."""
    span = message.span(result.path)
    splices = [Splice(span, dumped(get_format(message.format).in_place_of(message.native, text, result.content)))]
    block_path = result.path[:-1]
    moved = _inner_breakpoint(result.content)
    if message.format == "anthropic" and moved is not None:
        block = message.span(block_path)
        if BREAKPOINT_KEY not in json.loads(message.raw[block.start : block.end]):
            end = Span(block.end - 1, block.end - 1)
            splices.append(Splice(end, b"," + dumped(BREAKPOINT_KEY) + b":" + dumped(moved)))
    return splices


def _inner_breakpoint(content: Any) -> Any:
    parts = content if isinstance(content, list) else ()
    marks = [part[BREAKPOINT_KEY] for part in parts if isinstance(part, dict) and part.get(BREAKPOINT_KEY) is not None]
    return marks[-1] if marks else None


def _without_thinking(message: TextMessage) -> list[Splice]:
    """The splices that leave out thinking; none if the message holds nothing else, since it may not be empty."""
    blocks = content_of(message.native)
    left_out = {place for place, block in enumerate(blocks) if is_thinking(block)}
    if not left_out or len(left_out) == len(blocks):
        return []
    spans = list(elements(message.raw, message.span(("content",)).start))
    return without(spans, left_out)
