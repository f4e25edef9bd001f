"""JSON values: which ones come back equal, what a parser would change kept as text, and plain values as bytes."""

from __future__ import annotations

import json
import marshal
import math
from typing import Any

MAX_LEVELS = 200
"""Levels of nesting allowed in a value; Python's JSON reader and writer fail at about 900."""

MAX_BITS = 14_281
"""Bits of a whole number: 4,299 digits, as Python writes and reads no number of more than 4,300."""

MAX_SHOWN_CHARACTERS = 24
"""How many characters of a refused number an error repeats, so that it stays one line."""


class NotJsonError(ValueError):
    """A value that JSON cannot bring back equal. The text continues a sentence: it says what the value holds."""


class NumberText(str):
    """A number of JSON that cannot be kept exactly (`1E400`, `NaN`), as it stands there; no message holds one."""

    __slots__ = ()


def check_json(value: object, level: int = 0) -> int:
    """The number of characters in the strings of a JSON value. Raises NotJsonError if it is not one."""
    kind = type(value)
    if kind is str:
        return len(value)  # type: ignore[arg-type]
    if isinstance(value, dict | list):
        if level >= MAX_LEVELS:
            raise NotJsonError(f"is nested more than {MAX_LEVELS} levels deep; flatten it.")
        if isinstance(value, list):
            return sum([check_json(child, level + 1) for child in value])
        for key in value:
            if not isinstance(key, str):
                raise NotJsonError(f"holds a key of type {type(key).__name__}; in JSON, keys are strings.")
        return sum([check_json(child, level + 1) for child in value.values()])
    if value is not None and kind is not bool:
        _check_scalar(value)
    return 0


def _check_scalar(value: object) -> None:
    if isinstance(value, NumberText):
        shown = value if len(value) <= MAX_SHOWN_CHARACTERS else value[:MAX_SHOWN_CHARACTERS] + "…"
        raise NotJsonError(f"holds the number {shown}, which cannot be kept exactly; write it as a string.")
    if isinstance(value, float) and not math.isfinite(value):
        raise NotJsonError(f"holds {value}, which is not a number in JSON; write it as a string or null.")
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise NotJsonError("holds a whole number of over 4,299 digits; write it as a string.")
    if not isinstance(value, str | int | float):
        name = type(value).__name__
        raise NotJsonError(f"holds a value of type {name}, which JSON does not have; pass a list, a dict or a string.")


MAX_DIGITS = 4_300
"""Digits of a whole number: Python's own limit for reading one (`sys.int_info.default_max_str_digits`)."""

MARSHAL_VERSION = 2
"""The newest version of marshal's format whose bytes depend on the value alone: later ones also write which objects
have several references."""


def value_bytes(value: Any) -> bytes | None:
    """Bytes that are equal only for equal values, of the same types and in the same order, in a tenth of the time that
    their JSON would take; None if the value holds anything but plain values."""
    try:
        return marshal.dumps(value, MARSHAL_VERSION)
    except ValueError:
        return None


def _finite_or_text(text: str) -> float | NumberText:
    number = float(text)
    return NumberText(text) if math.isinf(number) else number


def _whole_or_text(text: str) -> int | NumberText:
    return int(text) if len(text.lstrip("-")) < MAX_DIGITS else NumberText(text)


LENIENT_DECODER = json.JSONDecoder(parse_constant=NumberText, parse_float=_finite_or_text, parse_int=_whole_or_text)
"""For files of other programs, which cannot be written again: a number that cannot be kept exactly, and NaN or
Infinity, which are not JSON, become a NumberText, with which a message is refused and the rest of the file is read."""


def lenient_value(data: bytes | str) -> Any:
    """The value of JSON in UTF-8; numbers that cannot be kept exactly become a NumberText. Raises ValueError and
    RecursionError like `json.loads`."""
    return LENIENT_DECODER.decode(data if isinstance(data, str) else data.decode("utf-8-sig"))
