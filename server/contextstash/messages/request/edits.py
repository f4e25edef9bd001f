"""Edits of a request's text: tool results replaced, messages replaced by a summary, and not a byte more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from contextstash.messages.base import Path
from contextstash.messages.breakpoints import content_of
from contextstash.messages.detection import get_format
from contextstash.messages.json_positions import Span, Splice, dumped, spliced
from contextstash.messages.request.text import RequestText, TextMessage, ToolResult

Texts = Mapping[int, Mapping[Path, str]]
"""What is sent in place of tool results: by the place of the message, and the path of the result in it."""


@dataclass(frozen=True, slots=True)
class SummaryOf:
    """The messages `first` to `last` (included) are sent as one message of the user with this text."""

    first: int
    last: int
    text: str


def edited(request: RequestText, texts: Texts, summaries: Sequence[SummaryOf] = ()) -> bytes:
    """The body with these edits. Raises JsonPositionError if a place is not what the edit expects."""
    hidden = {place for summary in summaries for place in range(summary.first, summary.last + 1)}
    splices = [splice for summary in summaries for splice in _summary(request, summary)]
    for place, replaced in texts.items():
        if place not in hidden:
            splices += _moved(_message(request.messages[place], replaced), request.spans[place].start)
    return spliced(request.body, splices) if splices else request.body


def _moved(splices: Sequence[Splice], by: int) -> list[Splice]:
    return [Splice(Span(span.start + by, span.end + by), new) for span, new in splices]


def _summary(request: RequestText, summary: SummaryOf) -> list[Splice]:
    """The summary as a message of the user, or as the beginning of the user's message that follows: Anthropic's
    messages alternate."""
    start, end = request.spans[summary.first].start, request.spans[summary.last].end
    following = summary.last + 1
    if request.format == "anthropic" and request.messages[following].native.get("role") == "user":
        after = request.spans[following].start
        inserted = _moved(_with_text(request.messages[following], summary.text), after)
        return [Splice(Span(start, after), b""), *inserted]
    return [Splice(Span(start, end), dumped(get_format(request.format).user_message(summary.text)))]


def _with_text(message: TextMessage, text: str) -> list[Splice]:
    """A text block in front of a message's content, which keeps its bytes."""
    content, block = message.span(("content",)), dumped({"type": "text", "text": text})
    if message.raw[content.start : content.start + 1] == b"[":
        at = content.start + 1
        return [Splice(Span(at, at), block + b"," if content_of(message.native) else block)]
    before, after = Span(content.start, content.start), Span(content.end, content.end)
    return [Splice(before, b"[" + block + b',{"type":"text","text":'), Splice(after, b"}]")]


def _message(message: TextMessage, texts: Mapping[Path, str]) -> list[Splice]:
    """The splices of one message, by positions in its own bytes: those of the request before if that had the same."""
    known: tuple[Mapping[Path, str], list[Splice]] | None = message.notes.get("splices")
    if known is None or known[0] != texts:
        replaced = [each for each in message.results if each.path in texts]
        splices = [_replaced(message, each, texts[each.path]) for each in replaced]
        known = message.notes["splices"] = texts, splices
    return known[1]


def _replaced(message: TextMessage, result: ToolResult, text: str) -> Splice:
    """The result's content as this text, in the shape that it had."""
    new = get_format(message.format).in_place_of(message.native, text, result.content)
    return Splice(message.span(result.path), dumped(new))
