"""JSON from elsewhere, read so that no value changes: what a reader would alter is refused or kept as text."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

import pydantic_core

MAX_LEVELS = 200
"""How deep a message on the wire may be nested: the limit of pydantic's reader, which is the SDK's."""

MAX_DIGITS = 4_300
"""Digits of a whole number: Python's own limit for reading one (`sys.int_info.default_max_str_digits`)."""

SHOWN_CHARACTERS = 24
"""How much of a number is repeated where it is refused."""

_LARGE_NUMBER = re.compile(rb"[0-9][eE]\+?[0-9]{3}|[0-9]{309}")
"""What may be a number beyond a double (1.8e308), which pydantic's reader turns into an infinity. Inside a string it
may be anything: the careful reading then finds nothing wrong."""


class BadJsonError(ValueError):
    """Bytes that are not JSON, or JSON that cannot be kept as it is. The text says what to do and holds no content
    but a number's beginning; `kind` names the problem without any content, for a log."""

    def __init__(self, kind: str, text: str, *, syntax: bool = True) -> None:
        super().__init__(text)
        self.kind = kind
        self.syntax = syntax


def strict_value(data: bytes) -> Any:
    """The value of JSON in UTF-8; lone surrogates are kept. Raises BadJsonError."""
    if not _LARGE_NUMBER.search(data):
        try:
            return pydantic_core.from_json(data, allow_inf_nan=False)
        except ValueError:
            pass  # lone surrogates are JSON, and the careful reading says better what is wrong
    return _carefully(data)


def _carefully(data: bytes) -> Any:
    try:
        value = _STRICT.decode(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise BadJsonError(
            "invalid UTF-8",
            f"The message is not UTF-8 (byte {error.start}). Send UTF-8; JSON escapes carry any character.",
        ) from None
    except json.JSONDecodeError as error:
        raise BadJsonError(
            "invalid JSON",
            f"The message is not JSON: {error.msg} at character {error.pos}. Send one JSON object on one line.",
        ) from None
    except RecursionError:
        raise _too_deep() from None
    if too_deep(value, MAX_LEVELS):
        raise _too_deep()
    return value


def _too_deep() -> BadJsonError:
    return BadJsonError(
        "nested too deep",
        f"The message is nested more than {MAX_LEVELS} levels deep. Flatten it, or send the deep part as text.",
        syntax=False,
    )


def too_deep(value: object, most: int) -> bool:
    """Whether lists and objects are nested deeper than so many levels."""
    level = [value]
    for _ in range(most + 1):
        level = [child for parent in level for child in _containers(parent)]
        if not level:
            return False
    return True


def _containers(value: object) -> Iterator[object]:
    if isinstance(value, dict):
        yield from (child for child in value.values() if isinstance(child, dict | list))
    elif isinstance(value, list):
        yield from (child for child in value if isinstance(child, dict | list))


def _refused_constant(name: str) -> Any:
    raise BadJsonError("NaN or Infinity", f"{name} is not JSON. Send it as a string or null.")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        shown = text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "…"
        raise BadJsonError(
            "number too large",
            f"The number {shown} is larger than a double can be (1.8e308). Send it as a string.",
            syntax=False,
        )
    return number


def _whole(text: str) -> int:
    if len(text.lstrip("-")) > MAX_DIGITS:
        raise BadJsonError(
            "number too long",
            f"A whole number has {len(text.lstrip('-')):,} digits, at most {MAX_DIGITS:,} can be kept."
            " Send it as a string.",
            syntax=False,
        )
    return int(text)


_STRICT = json.JSONDecoder(parse_constant=_refused_constant, parse_float=_finite, parse_int=_whole)


def _finite_or_text(text: str) -> float | str:
    number = float(text)
    return text if math.isinf(number) else number


def _whole_or_text(text: str) -> int | str:
    return int(text) if len(text.lstrip("-")) <= MAX_DIGITS else text


KEEPING = json.JSONDecoder(parse_constant=str, parse_float=_finite_or_text, parse_int=_whole_or_text)
"""For files that others wrote, which nobody can be asked to write again: a number that cannot be kept, and what is no
number in JSON (NaN, Infinity), is kept as its text."""


def kept_value(data: bytes | str) -> Any:
    """The value of JSON in UTF-8, numbers that cannot be kept as their text. Raises ValueError and RecursionError as
    `json.loads` does."""
    return KEEPING.decode(data if isinstance(data, str) else data.decode("utf-8-sig"))
