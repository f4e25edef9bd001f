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


Measure = Callable[[str, int], Span]
"""Returns the span of the value that begins at a position, given its key."""


def members(text: str, at: int, measure: Measure | None = None) -> Iterator[Member]:
    """The members of the object that begins at `at`, duplicates included, in order. `measure` finds the ends of values
    in place of `value_at`, for a caller that knows parts of them already."""
    at = first_item(text, at, "{")
    while at >= 0:
        name = value_at(text, at)
        colon = skip_space(text, name.end)
        if text[at] != '"' or text[colon : colon + 1] != ":":
            raise JsonPositionError(f"no member at byte {at}")
        key = json.loads(text[name.start : name.end])
        begin = skip_space(text, colon + 1)
        value = measure(key, begin) if measure else value_at(text, begin)
        yield Member(key, value)
        at = next_item(text, value.end, "}")


def elements(text: str, at: int) -> Iterator[Span]:
    """The spans of the elements of the array that begins at `at`."""
    at = first_item(text, at, "[")
    while at >= 0:
        span = value_at(text, at)
        yield span
        at = next_item(text, span.end, "]")


def first_item(text: str, at: int, opening: str) -> int:
    """The position of the first item of a container; -1 if it is empty."""
    if text[at : at + 1] != opening:
        raise JsonPositionError(f"{opening} expected at byte {at}")
    at = skip_space(text, at + 1)
    return -1 if text[at : at + 1] == ("}" if opening == "{" else "]") else at


def next_item(text: str, at: int, closing: str) -> int:
    """The position of the item after the one that ends at `at`; -1 if that was the last one."""
    at = skip_space(text, at)
    sign = text[at : at + 1]
    if sign == closing:
        return -1
    if sign != ",":
        raise JsonPositionError(f"a comma or {closing} expected at byte {at}")
    return skip_space(text, at + 1)


def find(text: str, at: int, path: Path) -> Span:
    """The span of the value at a path. Raises JsonPositionError if it does not exist, or if a key on the way is there
    twice: parsers differ in which of the two counts."""
    span = value_at(text, at)
    for step in path:
        span = _member(text, span.start, step) if isinstance(step, str) else _element(text, span.start, step)
    return span


def _member(text: str, at: int, key: str) -> Span:
    found = [member.value for member in members(text, at) if member.key == key]
    if len(found) != 1:
        raise JsonPositionError(f"{len(found)} members '{key}' at byte {at}")
    return found[0]


def _element(text: str, at: int, index: int) -> Span:
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
