"""A message's text for the search index, stored as references to its body, which has most of it."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from contextstash_storage.codec.bodies import text_bytes, to_bytes

_ARGUMENTS = ("input", "args", "arguments")
"""Fields whose objects are a call's arguments: their text is their JSON."""

MIN_SOURCE = 3
"""Characters of a string that is worth a reference: two digits and a comma."""

MAX_TRIES = 8
"""How many strings with the same first line are compared at one place of a text. A message of 1,000 equal
calls would take the square of it otherwise."""

_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def sources(body: Mapping[str, Any], calls: Iterable[tuple[str, str]]) -> list[str]:
    """What a text can refer to: the strings of the body and the arguments of its calls, in their order, then the tool
    and main argument of each output. Part of the format: the numbers of stored references are places in this list."""
    return [*_strings(body), *(" ".join(call) for call in calls)]


def _strings(value: Any) -> Iterator[str]:
    waiting = [value]
    while waiting:  # not recursive: a body may be nested as deep as JSON is read
        child = waiting.pop()
        if isinstance(child, str):
            yield child
        elif isinstance(child, dict):
            for key in _ARGUMENTS:
                if isinstance(child.get(key), dict | list):
                    yield _as_json(child[key])
            waiting += reversed(child.values())
        elif isinstance(child, list | tuple):
            waiting += reversed(child)


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def referring(text: str, known: Sequence[str]) -> bytes:
    """A text as references to known strings. JSON makes one character of two surrogates that stand together, so that
    the body is read as another text than the one in the index: such a text is stored whole, and not escaped."""
    return text_bytes(_as_json([text])) if _has_pair(text) else to_bytes(list(_pieces(text, known)))


def _has_pair(text: str) -> bool:
    try:
        text.encode()  # takes a tenth of the search
    except UnicodeEncodeError:
        return _PAIR.search(text) is not None
    return False


def _pieces(text: str, known: Sequence[str]) -> Iterator[int | str]:
    """The numbers of the strings, or the lines, that a text consists of when they are joined by line breaks."""
    numbers = _by_first_line(known)
    place = literal = last = 0
    while place <= len(text):
        end = text.find("\n", place)
        end = len(text) if end < 0 else end
        candidates = numbers.get(text[place:end], ())
        number = _matching(text, place, known, candidates, last) if candidates else None
        if number is None:
            place = end + 1
            continue
        if literal < place:
            yield text[literal : place - 1]
        yield number
        last = number
        place = literal = place + len(known[number]) + 1
    if literal <= len(text):
        yield text[literal:]


def _by_first_line(known: Sequence[str]) -> dict[str, list[int]]:
    numbers: dict[str, list[int]] = defaultdict(list)
    for number, each in enumerate(known):
        if len(each) >= MIN_SOURCE:
            numbers[each.partition("\n")[0]].append(number)
    return numbers


def _matching(text: str, place: int, known: Sequence[str], candidates: Sequence[int], last: int) -> int | None:
    """The first string from number `last` on, or else from the first on, that stands at a place, to the end of a line;
    a text has the strings of its body in their order."""
    start = bisect_left(candidates, last)
    for number in [*candidates[start : start + MAX_TRIES], *candidates[: min(start, MAX_TRIES)]]:
        end = place + len(known[number])
        if text.startswith(known[number], place) and (end == len(text) or text[end : end + 1] == "\n"):
            return number
    return None


def referred(stored: bytes, known: Sequence[str]) -> str:
    """The text of `referring`."""
    pieces: list[int | str] = json.loads(stored.decode("utf-8", "surrogatepass"))
    return "\n".join(known[piece] if isinstance(piece, int) else piece for piece in pieces)
