"""Positions of the values in a JSON text, so that one of them can be replaced and every other byte stays as it is.

A text that is parsed and dumped again is another text: escapes, key order, numbers, duplicate keys and white space
change, and with them signatures and the provider's prompt cache. Here nothing is dumped: a value is found, and spliced.

A text is searched with one character for each of its bytes (Latin-1), by Python's own decoder: so all positions are
those of bytes, since JSON's own signs are ASCII, and in UTF-8 no other character has a byte of theirs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from contextstash.messages.base import Path


class Span(NamedTuple):
    """The bytes `start` to `end` (not included) of a text."""

    start: int
    end: int


class Splice(NamedTuple):
    """Bytes that replace a span of a text."""

    span: Span
    replacement: bytes


class JsonPositionError(ValueError):
    """The text is not JSON at this position, or not the JSON that was expected there."""


_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


def skip_space(text: str, at: int) -> int:
    """The position of the next character that is not white space."""
    found = _SPACE.match(text, at)
    return found.end() if found else at


def value_at(text: str, at: int) -> Span:
    """The span of the value that begins at `at`. Raises JsonPositionError if none does."""
    try:
        return Span(at, _DECODER.raw_decode(text, at)[1])
    except (ValueError, RecursionError) as error:
        raise JsonPositionError(f"no value at byte {at}") from error


Measure = Callable[[str | int, int], Span]
"""Returns the span of the value that begins at a position, given its key or its index."""


def items(text: str, at: int, measure: Measure | None = None) -> Iterator[tuple[str | int, Span]]:
    """The values in the object or the array that begins at `at`, each with its key or its index, in order; of equal
    keys all. `measure` finds the ends of values in place of `value_at`, for a caller that knows parts of them already.
    Raises JsonPositionError."""
    closing = {"{": "}", "[": "]"}.get(text[at : at + 1])
    if closing is None:
        raise JsonPositionError(f"an object or an array expected at byte {at}")
    at, place = skip_space(text, at + 1), 0
    while text[at : at + 1] != closing or place:
        key: str | int = place
        if closing == "}":
            name = value_at(text, at)
            colon = skip_space(text, name.end)
            if text[at] != '"' or text[colon : colon + 1] != ":":
                raise JsonPositionError(f"no member at byte {at}")
            key, at = json.loads(text[at : name.end]), skip_space(text, colon + 1)
        value = measure(key, at) if measure else value_at(text, at)
        yield key, value
        at, place = skip_space(text, value.end), place + 1
        if text[at : at + 1] == closing:
            return
        if text[at : at + 1] != ",":
            raise JsonPositionError(f"a comma or {closing} expected at byte {at}")
        at = skip_space(text, at + 1)


def find(text: str, at: int, path: Path) -> Span:
    """The span of the value at a path. Raises JsonPositionError if it does not exist, or if a key on the way is there
    twice: parsers differ in which of the two counts."""
    span = value_at(text, at)
    for step in path:
        found = [value for key, value in items(text, span.start) if key == step]
        if len(found) != 1:
            raise JsonPositionError(f"{len(found)} values of {step!r} at byte {span.start}")
        span = found[0]
    return span


def spliced(text: bytes, splices: Sequence[Splice]) -> bytes:
    """The text with these spans replaced; every other byte is unchanged. Raises JsonPositionError if two overlap."""
    parts: list[bytes] = []
    at = 0
    for span, replacement in sorted(splices):
        if span.start < at:
            raise JsonPositionError(f"two edits overlap at byte {span.start}")
        parts += (text[at : span.start], replacement)
        at = span.end
    parts.append(text[at:])
    return b"".join(parts)


def dumped(value: object) -> bytes:
    """A new value as compact JSON, in ASCII: no surrogate or control character can make the body invalid."""
    return json.dumps(value, separators=(",", ":")).encode("ascii")
