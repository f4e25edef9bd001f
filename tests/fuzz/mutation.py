"""Changes of an input that keep most of its form: a parser of JSON refuses nearly all others at once."""

from __future__ import annotations

import json
import random
from typing import Any

VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, 10**400, 2**63, "", "x", "\ud800", "\x00", "a" * 3_000, [], {}, [[]], [None], {"": None},
    "1e999", "2026-13-45T99:99:99Z", "data:image/png;base64,AAAA", "sk-ant-api03-" + "a1B2" * 24,
    "<private>x</private>",
    [{"type": "text", "text": "x"}], {"type": "tool_result", "tool_use_id": 7, "content": None}, float("inf"),
)  # fmt: skip
"""What stands in the place of another value: the ends of ranges, wrong types, and what readers look for."""

BYTES = (b"\xff", b"\x00", b"(", b"\\", b"%", b'"', b"\r\n", b"\xed\xa0\x80")

MAX_CHANGES = 4
MAX_DEPTH = 2_000


def mutated(data: bytes, rng: random.Random) -> bytes:
    """The input with some changes: of its JSON value, of one of its lines, or of its bytes."""
    for _ in range(rng.randint(1, MAX_CHANGES)):
        choice = rng.random()
        if choice < 0.65:
            data = _changed_json(data, rng)
        elif choice < 0.8:
            data = _changed_lines(data, rng)
        else:
            data = _changed_bytes(data, rng)
    return data


def _changed_json(data: bytes, rng: random.Random) -> bytes:
    lines = data.split(b"\n")
    whole = _value(data)
    if whole is not _NONE:
        return _bytes(_changed(whole, rng), rng)
    place = rng.randrange(len(lines))
    prefix = b"data: " if lines[place].startswith(b"data: ") else b""
    value = _value(lines[place].removeprefix(prefix))
    if value is _NONE:
        return _changed_bytes(data, rng)
    lines[place] = prefix + _bytes(_changed(value, rng), rng)
    return b"\n".join(lines)


_NONE = object()


def _value(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return _NONE


def _bytes(value: Any, rng: random.Random) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    except RecursionError:
        return b"[]"


def _changed(value: Any, rng: random.Random) -> Any:
    """The value with one change at a random place."""
    places: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        each = waiting.pop()
        children = each.items() if isinstance(each, dict) else enumerate(each) if isinstance(each, list) else ()
        for key, child in children:
            places.append((each, key))
            waiting.append(child)
    if not places:
        return rng.choice(VALUES)
    holder, key = rng.choice(places)
    _change(holder, key, rng, places)
    return value


def _change(holder: Any, key: Any, rng: random.Random, places: list[tuple[Any, Any]]) -> None:
    choice = rng.randrange(6)
    if choice == 0:
        del holder[key]
    elif choice == 1:
        other, place = rng.choice(places)
        holder[key] = json.loads(json.dumps(other[place]))  # a copy: no cycles
    elif choice == 2 and isinstance(holder, list):
        holder.insert(key, json.loads(json.dumps(holder[key])))
    elif choice == 3 and isinstance(holder, dict):
        holder[rng.choice(("", "type", "content", str(key).upper(), "\ud800"))] = holder.pop(key)
    elif choice == 4 and isinstance(holder[key], str):
        text = holder[key]
        cut = rng.randrange(len(text) + 1)
        holder[key] = text[:cut] + rng.choice(("\x00", "\ud800", "\n", "é", "‹", "")) + text[cut + rng.randrange(3) :]
    else:
        holder[key] = _deep(rng) if rng.random() < 0.02 else rng.choice(VALUES)


def _deep(rng: random.Random) -> Any:
    value: Any = None
    for _ in range(rng.randrange(MAX_DEPTH)):
        value = [value]
    return value


def _changed_lines(data: bytes, rng: random.Random) -> bytes:
    lines = data.split(b"\n")
    one, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    choice = rng.randrange(4)
    if choice == 0:
        lines[one], lines[other] = lines[other], lines[one]
    elif choice == 1:
        lines.insert(one, lines[other])
    elif choice == 2:
        del lines[one]
    else:
        lines[one] = lines[one][: rng.randrange(len(lines[one]) + 1)]
    return b"\n".join(lines)


def _changed_bytes(data: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(data) + 1)
    choice = rng.randrange(4)
    if choice == 0:
        return data[:place] + bytes([rng.randrange(256)]) + data[place:]
    if choice == 1:
        return data[:place] + data[place + rng.randrange(1, 8) :]
    if choice == 2:
        piece = data[place : place + rng.randrange(1, 64)]
        return data[:place] + piece * rng.randrange(2, 5) + data[place:]
    return (
        data[:place]
        + rng.choice((b"\xff", b"\x00", b"(", b"\\", b"%", b'"', b"\r\n", b"\xed\xa0\x80"))
        + data[place + 1 :]
    )
