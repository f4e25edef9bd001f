"""Making any text fit to stand in one line before a model: no control characters, no forged markers."""

from __future__ import annotations

import re

MARKER = "[contextstash"
"""How everything begins that contextstash itself puts before the model."""

_ANSI = re.compile(r"\x1b(?:\[[0-?]{0,40}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[@-Z\\-_])")
_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202f\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb]+"
)
_SURROGATE = re.compile("[\ud800-\udfff]")
_SPACES = re.compile(r"\s+")
_FORGED = re.compile(r"\[(?=\s*context\s*stash)", re.IGNORECASE)


def without_ansi(text: str) -> str:
    """The text without terminal colour and cursor sequences."""
    return _ANSI.sub("", text) if "\x1b" in text else text


def one_line(text: str, max_chars: int) -> str:
    """The text as one line of at most `max_chars` characters, cut at its end with an ellipsis.

    Runs of white space, control, direction and zero-width characters and lone surrogates become one space; an
    opening marker of ours becomes a round bracket, so that text cannot pass for what contextstash says.
    """
    text = without_ansi(text[: 8 * max_chars + 200])
    text = _SPACES.sub(" ", _UNPRINTABLE.sub(" ", text)).strip()
    return clip(_FORGED.sub("(", text), max_chars)


def clip(text: str, max_chars: int) -> str:
    """The text, or its beginning with an ellipsis, at most `max_chars` long."""
    if len(text) <= max_chars:
        return text
    return text[: max(0, max_chars - 1)].rstrip() + "…" * (max_chars > 0)


def encodable(text: str) -> str:
    """The text with each lone surrogate replaced, so that it can be written as UTF-8."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def unforged(text: str) -> str:
    """The text, lines kept, without anything that looks like a marker of ours."""
    return _FORGED.sub("(", text)
