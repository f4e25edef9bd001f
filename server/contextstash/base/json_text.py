"""JSON from outside: what a parser would change is kept as text; and plain values as bytes."""

from __future__ import annotations

import json
import marshal
import math
from typing import Any

from contextstash.base.json_values import NumberText

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
