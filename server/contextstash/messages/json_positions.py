"""Positions of the values in a JSON text, so that one of them can be replaced and every other byte stays as it is.

A text that is parsed and dumped again is another text: escapes, key order, numbers, duplicate keys and white space
change, and with them signatures and the provider's prompt cache. Here nothing is dumped: a value is found, and spliced.
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


class Member(NamedTuple):
    """One member of an object: its key, and the span of its value."""

    key: str
    value: Span


class Splice(NamedTuple):
    """Bytes that replace a span of a text."""

    span: Span
    replacement: bytes


class JsonPositionError(ValueError):
    """The text is not JSON at this position, or not the JSON that was expected there."""


_SPACE = re.compile(rb"[ \t\n\r]*")
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_LITERAL = re.compile(rb"[-+.0-9A-Za-z]++")
_NESTING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)
"""A string that is cut off is a token too: otherwise each quotation mark in it would be tried as the start of one."""

_OPENING, _CLOSING, _QUOTE = b"[{", b"]}", ord('"')


def skip_space(text: bytes, at: int) -> int:
    """The position of the next byte that is not white space."""
    found = _SPACE.match(text, at)
    return found.end() if found else at


def value_at(text: bytes, at: int) -> Span:
    """The span of the value that begins at `at`. Brackets are counted, not matched: `json.loads` of the span says
    whether it is valid JSON. Raises JsonPositionError if no value ends there."""
    if at >= len(text):
        raise JsonPositionError("the text ends where a value was expected")
    first = text[at]
    if first in _OPENING:
        return Span(at, _end_of_container(text, at))
    found = (_STRING if first == _QUOTE else _LITERAL).match(text, at)
    if found is None:
        raise JsonPositionError(f"no value at byte {at}")
    return Span(at, found.end())


def _end_of_container(text: bytes, at: int) -> int:
    depth = 0
    for token in _NESTING.finditer(text, at):
        sign = text[token.start()]
        if sign in _OPENING:
            depth += 1
        elif sign in _CLOSING:
            depth -= 1
            if depth == 0:
                return token.end()
    raise JsonPositionError(f"the value at byte {at} does not end")


Measure = Callable[[str, int], Span]
"""Returns the span of the value that begins at a position, given its key."""


def members(text: bytes, at: int, measure: Measure | None = None) -> Iterator[Member]:
    """The members of the object that begins at `at`, duplicates included, in order. `measure` finds the ends of values
    in place of `value_at`, for a caller that knows parts of them already."""
    at = first_item(text, at, b"{")
    while at >= 0:
        name = value_at(text, at)
        colon = skip_space(text, name.end)
        if text[at] != _QUOTE or text[colon : colon + 1] != b":":
            raise JsonPositionError(f"no member at byte {at}")
        key = json.loads(text[name.start : name.end])
        begin = skip_space(text, colon + 1)
        value = measure(key, begin) if measure else value_at(text, begin)
        yield Member(key, value)
        at = next_item(text, value.end, b"}")


def elements(text: bytes, at: int) -> Iterator[Span]:
    """The spans of the elements of the array that begins at `at`."""
    at = first_item(text, at, b"[")
    while at >= 0:
        span = value_at(text, at)
        yield span
        at = next_item(text, span.end, b"]")


def first_item(text: bytes, at: int, opening: bytes) -> int:
    """The position of the first item of a container; -1 if it is empty."""
    if text[at : at + 1] != opening:
        raise JsonPositionError(f"{opening.decode()} expected at byte {at}")
    at = skip_space(text, at + 1)
    return -1 if text[at : at + 1] == (b"}" if opening == b"{" else b"]") else at


def next_item(text: bytes, at: int, closing: bytes) -> int:
    """The position of the item after the one that ends at `at`; -1 if that was the last one."""
    at = skip_space(text, at)
    sign = text[at : at + 1]
    if sign == closing:
        return -1
    if sign != b",":
        raise JsonPositionError(f"a comma or {closing.decode()} expected at byte {at}")
    return skip_space(text, at + 1)


def find(text: bytes, at: int, path: Path) -> Span:
    """The span of the value at a path. Raises JsonPositionError if it does not exist, or if a key on the way is there
    twice: parsers differ in which of the two counts."""
    span = value_at(text, at)
    for step in path:
        span = _member(text, span.start, step) if isinstance(step, str) else _element(text, span.start, step)
    return span


def _member(text: bytes, at: int, key: str) -> Span:
    found = [member.value for member in members(text, at) if member.key == key]
    if len(found) != 1:
        raise JsonPositionError(f"{len(found)} members '{key}' at byte {at}")
    return found[0]


def _element(text: bytes, at: int, index: int) -> Span:
    for place, span in enumerate(elements(text, at)):
        if place == index:
            return span
    raise JsonPositionError(f"no element {index} at byte {at}")


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
