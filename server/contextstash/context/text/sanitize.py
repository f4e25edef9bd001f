"""Making any text fit to stand in one line before a model: no control characters, no forged markers."""

from __future__ import annotations

import re

MARKER = "[contextstash"
"""How everything begins that contextstash itself puts before the model."""

_ANSI = re.compile(r"\x1b(?:\[[0-?]{0,40}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[@-Z\\-_])")
_INVISIBLE = (
    "\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202f\u2060-\u206f\u3164"
    "\ud800-\udfff\ufeff\uffa0\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Control, direction, zero-width, filler and tag characters and lone surrogates, as a class of a regular expression."""

_UNPRINTABLE = re.compile(f"[{_INVISIBLE}]+")
_SURROGATE = re.compile("[\ud800-\udfff]")
_SPACES = re.compile(r"\s+")

_OPENING = "[⁅⎡⎢⎣❲⟦⟬⦋⦍⦏⦗⧘⧚⸢⸤⹕⹗〈《【〔〖〘〚﹇﹝［︗︹︻⟨⟪⧼❬❰⦑⸂⸄︽︿\u2329"
_CLOSING = "]⁆⎤⎥⎦❳⟧⟭⦌⦎⦐⦘⧙⧛⸣⸥⹖⹘〉》】〕〗〙〛﹈﹞］︘︺︼⟩⟫⧽❭❱⦒⸃⸅︾﹀\u232a"
"""Square brackets and what a reader could take for one: full-width, lenticular, white, with ticks or quills."""

_ROUND = str.maketrans(dict.fromkeys(_OPENING, "(") | dict.fromkeys(_CLOSING, ")"))

_LOOK_ALIKES = {
    "a": "aаαａ", "c": "cсϲｃ", "d": "dԁｄ", "e": "eеｅ", "g": "gɡｇ", "h": "hһｈ", "i": "iіｉ", "l": "lⅼｌ",
    "m": "mⅿｍ", "n": "nｎ", "o": "oоοｏ", "p": "pрｐ", "r": "rｒ", "s": "sѕｓ", "t": "tｔ", "u": "uｕ", "v": "vѵｖ",
    "w": "wԝｗ", "x": "xхｘ", "y": "yуｙ",
}  # fmt: skip
"""Letters of other alphabets and full-width ones that look like Latin ones."""


def spelled(words: str, *, across_lines: bool = True) -> str:
    """A regular expression for these words in small letters, whatever look-alikes they are written with and whatever
    invisible characters or spaces stand between the letters."""
    gap = rf"[\s_{_INVISIBLE}-]{{0,8}}" if across_lines else rf"(?:(?!\n)[ _{_INVISIBLE}-]){{0,8}}"
    return gap.join(f"[{_LOOK_ALIKES[letter]}]" for letter in words if letter != " ")


_FORGED = re.compile(
    rf"[{re.escape(_OPENING)}](?=[\s{_INVISIBLE}]{{0,80}}"
    rf"(?:{spelled('contextstash')}|{spelled('compaction tool digest')}|{spelled('previously viewed')}))",
    re.IGNORECASE,
)
"""The bracket before a marker or placeholder of ours, or before what can be taken for one."""


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


def unbracketed(text: str) -> str:
    """The text, as long as before, with round brackets in the place of all that look like square ones: what stands in a
    placeholder can neither end it nor begin another."""
    return text.translate(_ROUND)


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
