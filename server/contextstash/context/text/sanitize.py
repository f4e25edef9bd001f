"""Makes any text safe to show to a model: no control characters, no forged markers, one line if needed."""

from __future__ import annotations

import re
from functools import cache

MARKER = "[contextstash"
"""The beginning of everything that contextstash itself writes into the model's context."""

OF_SESSION = "hand-off of session "
"""What the first line of a hand-off says."""

USER_BLOCK = f"{MARKER} user:"
"""The beginning of our messages that hold the user's words; they stay at the head of the view."""

USER_BLOCK_OPENING = f"{USER_BLOCK} word for word what the user said in messages"

USER_BLOCK_WHOLE = f"{USER_BLOCK_OPENING} 0 to "
"""The beginning of one that begins with the session: it takes the place of those before it."""

_ANSI = re.compile(r"\x1b(?:\[[0-?]{0,40}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[@-Z\\-_])")
UNSEEN = (
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202f\u2060-\u206f\u3164\ufeff\uffa0"
    "\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Direction, zero-width, filler and tag characters, as a part of a regular expression's class."""

_INVISIBLE = f"\x00-\x1f\x7f-\x9f\ud800-\udfff{UNSEEN}"
"""The same, control characters and lone surrogates."""

_UNPRINTABLE = re.compile(f"[{_INVISIBLE}]+")
_SURROGATE = re.compile("[\ud800-\udfff]")
_SPACES = re.compile(r"\s+")

_OPENING = "[⁅⎡⎢⎣❲⟦⟬⦋⦍⦏⦗⧘⧚⸢⸤⹕⹗〈《【〔〖〘〚﹇﹝［︗︹︻⟨⟪⧼❬❰⦑⸂⸄︽︿\u2329"
_CLOSING = "]⁆⎤⎥⎦❳⟧⟭⦌⦎⦐⦘⧙⧛⸣⸥⹖⹘〉》】〕〗〙〛﹈﹞］︘︺︼⟩⟫⧽❭❱⦒⸃⸅︾﹀\u232a"
"""Square brackets and the characters that look like one: full-width, lenticular, white, with ticks or quills."""

_ROUND = str.maketrans(dict.fromkeys(_OPENING, "(") | dict.fromkeys(_CLOSING, ")"))

_LOOK_ALIKES = {
    "a": "aаαａ", "c": "cсϲｃ", "d": "dԁｄ", "e": "eеｅ", "g": "gɡｇ", "h": "hһｈ", "i": "iіｉ", "l": "lⅼｌ",
    "m": "mмⅿｍ", "n": "nпｎ", "o": "oоοｏ", "p": "pрｐ", "r": "rｒ", "s": "sѕｓ", "t": "tтτｔ", "u": "uυｕ",
    "v": "vѵｖ", "w": "wԝｗ", "x": "xхｘ", "y": "yуｙ",
}  # fmt: skip
"""Letters of other alphabets, and full-width letters, that look like Latin ones."""


def spelled(words: str, *, across_lines: bool = True) -> str:
    """A regular expression for these lower-case words that also matches look-alike letters, and invisible characters or
    spaces between the letters."""
    gap = rf"[\s_{_INVISIBLE}-]{{0,8}}" if across_lines else rf"(?:(?!\n)[ _{_INVISIBLE}-]){{0,8}}"
    return gap.join(f"[{_LOOK_ALIKES[letter]}]" for letter in words if letter != " ")


_MAY_BE_FORGED = re.compile(rf"[{re.escape(_OPENING)}](?:[^\x21-\x7e]|[_-]|[cp])", re.IGNORECASE)
"""The beginning of every forged marker: a bracket, then one of the first letters, something invisible or a letter that
is not ASCII. Most texts have none."""


@cache
def _forged() -> re.Pattern[str]:
    """The bracket before a marker or placeholder of contextstash, or before text that looks like one. Compiled at first
    use: that takes longer than a client's hook may need for a small output."""
    return re.compile(
        rf"[{re.escape(_OPENING)}](?=[\s{_INVISIBLE}]{{0,80}}"
        rf"(?:{spelled('contextstash')}|{spelled('compaction tool digest')}|{spelled('previously viewed')}))",
        re.IGNORECASE,
    )


@cache
def _host_tags() -> re.Pattern[str]:
    """The bracket before a client's own tag, such as a reminder of the system. Compiled at first use too."""
    tags = "|".join(spelled(word, across_lines=False) for word in ("im", "start", "end", "eot", "system", "user"))
    reminder = rf"{spelled('system reminder', across_lines=False)}(?!\w)"
    return re.compile(rf"<(?=[/ \t{UNSEEN}]{{0,8}}(?:{reminder}|\|[{UNSEEN}]{{0,8}}(?:{tags})))", re.IGNORECASE)


def without_ansi(text: str) -> str:
    """The text without terminal colour and cursor sequences."""
    return _ANSI.sub("", text) if "\x1b" in text else text


def one_line(text: str, max_chars: int) -> str:
    """The text as one line of at most `max_chars` characters; a longer one ends with an ellipsis.

    Each run of white space, control, direction and zero-width characters and lone surrogates becomes one space. The
    square bracket of a forged marker becomes a round one, so that no text passes for one that contextstash wrote, and
    that of a host's tag another one.
    """
    # Eight times the length is enough to fill the line after escape sequences and blanks are removed.
    text = without_ansi(text[: 8 * max_chars + 200])
    if not _is_plain(text):
        text = _UNPRINTABLE.sub(" ", text)
    if "  " in text or not _is_plain(text):
        text = _SPACES.sub(" ", text)
    return clip(without_host_tags(unforged(text.strip())), max_chars)


def _is_plain(text: str) -> bool:
    """Whether all characters are printable ASCII. Most texts are, and need no regular expression: to look at each
    character with one takes twenty times as long."""
    return text.isascii() and text.isprintable()


def unbracketed(text: str) -> str:
    """The text, of the same length, with a round bracket for each square one or look-alike, so that text inside a
    placeholder can neither end it nor begin another."""
    if text.isascii() and "[" not in text and "]" not in text:
        return text
    return text.translate(_ROUND)


def clip(text: str, max_chars: int) -> str:
    """The text, or its beginning with an ellipsis; at most `max_chars` characters."""
    if len(text) <= max_chars:
        return text
    return text[: max(0, max_chars - 1)].rstrip() + "…" * (max_chars > 0)


def encodable(text: str) -> str:
    """The text with each lone surrogate replaced, so that it can be written as UTF-8."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def without_host_tags(text: str) -> str:
    """The text without tags that hosts and chat templates set off text with which is not a tool's output."""
    return _host_tags().sub("‹", text) if "<" in text else text


def unforged(text: str) -> str:
    """The text with the same lines, without anything that looks like a marker of contextstash."""
    if text.isascii() and "[" not in text:
        return text
    return _forged().sub("(", text) if _MAY_BE_FORGED.search(text) else text
