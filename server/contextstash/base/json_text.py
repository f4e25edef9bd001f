"""Reads JSON from outside without changing a value: what a parser would alter is rejected or kept as text."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import pydantic_core

from contextstash_storage.json_values import NumberText

MAX_LEVELS = 200
"""How deep a message on the wire may be nested: the limit of pydantic's parser, which the SDK uses."""

MAX_DIGITS = 4_300
"""Digits of a whole number: Python's own limit for reading one (`sys.int_info.default_max_str_digits`)."""

MAX_SHOWN_CHARACTERS = 24
"""How many characters of a rejected number an error repeats."""

_DIGITS_ALIKE = bytes.maketrans(b"123456789E", b"000000000e")

_LARGE_NUMBERS = (b"0e000", b"0e+000", b"0" * 309)
"""A number that may be beyond a double (1.8e308), all digits as 0: pydantic's parser turns it into an infinity."""

SEARCHED_BYTES = 1024 * 1024
"""How much is searched at a time, in about 2 ms: other threads can run only between two searches. A pattern took 2
seconds for 30 MB."""


class BadJsonError(ValueError):
    """Bytes that are not JSON, or JSON that cannot be stored unchanged. The text says what to do and quotes nothing
    except the beginning of a number; `kind` names the problem without any content, for a log."""

    def __init__(self, kind: str, text: str, *, syntax: bool = True) -> None:
        super().__init__(text)
        self.kind = kind
        self.syntax = syntax


def strict_value(data: bytes) -> Any:
    """The value of JSON in UTF-8; lone surrogates are kept. Raises BadJsonError."""
    if not _may_hold_large_number(data):
        try:
            return pydantic_core.from_json(data, allow_inf_nan=False)
        except ValueError:
            pass  # lone surrogates are valid JSON, and the strict decoder gives clearer errors
    return _strict_decoded(data)


def _may_hold_large_number(data: bytes) -> bool:
    """Whether there may be a number beyond a double. One inside a string does no harm: the strict decoder, which is
    slower, then accepts the text."""
    longest = len(_LARGE_NUMBERS[-1])
    for start in range(0, len(data), SEARCHED_BYTES):
        part = data[start : start + SEARCHED_BYTES + longest].translate(_DIGITS_ALIKE)
        if any(number in part for number in _LARGE_NUMBERS):
            return True
    return False


def _strict_decoded(data: bytes) -> Any:
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


def too_deep(value: object, limit: int) -> bool:
    """Whether lists and objects are nested more than `limit` levels deep."""
    level = [value]
    for _ in range(limit + 1):
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
        shown = text if len(text) <= MAX_SHOWN_CHARACTERS else text[:MAX_SHOWN_CHARACTERS] + "…"
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
            f"A whole number has {len(text.lstrip('-')):,} digits; at most {MAX_DIGITS:,} can be kept."
            " Send it as a string.",
            syntax=False,
        )
    return int(text)


_STRICT = json.JSONDecoder(parse_constant=_refused_constant, parse_float=_finite, parse_int=_whole)


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
