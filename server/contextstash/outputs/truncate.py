"""Truncates a text by lines, characters, UTF-8 bytes or tokens, never inside a character."""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Callable

Count = Callable[[str], int]
"""Tokens of a text."""

Take = Callable[[str, int], str]
"""`take(text, most)`: one end of a text, of at most that many units."""

MAX_SEQUENCE_LENGTH = 16
"""At most this many code points are kept together as one visible character, such as a letter with its combining marks.
The longest emoji sequences have about ten; without a limit, a text of marks alone could not be cut."""

MAX_TOKENS_PER_BYTE = 2
"""No token counter returns more: a byte-pair token has at least one byte, and a model's factor is below 2."""

COUNTED_PIECE = 50_000
"""How many characters are counted at a time if only a limit is checked. It is small against a large output, and
large against the error at a seam."""

SEAM_TOKENS = 16
"""How much the sum of two pieces' counts may differ from the count of both together, in tokens. A cut splits at
most one word."""

MAX_CHARACTERS_PER_TOKEN = 16
"""At most this many characters are kept for each token: a run of blanks has many more, but would only fill the screen.
That is four times the ratio of English text."""

MAX_COUNTS = 20
"""How often a text is counted at most to find the longest part that fits. It bounds the time."""

_VARIATIONS = ("\ufe00", "\ufe0f")
_SKIN_TONES = ("\U0001f3fb", "\U0001f3ff")
_ZERO_WIDTH_JOINER = "\u200d"


def byte_length(text: str) -> int:
    """Length in UTF-8 bytes; a lone surrogate counts as three."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def line_count(text: str) -> int:
    """Number of lines: the line feeds, plus a last line without one. All of contextstash counts lines this way."""
    return text.count("\n") + (bool(text) and not text.endswith("\n"))


def line_list(text: str) -> list[str]:
    """The lines with their line feeds; joined, they are the text."""
    lines = [f"{line}\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def first_lines(text: str, most: int) -> str:
    """The first `most` lines."""
    end = 0
    for _ in range(most):
        end = text.find("\n", end) + 1
        if not end:
            return text
    return text[:end]


def last_lines(text: str, most: int) -> str:
    """The last `most` lines."""
    if most <= 0:
        return ""
    start = len(text) - text.endswith("\n")
    for _ in range(most):
        start = text.rfind("\n", 0, start)
        if start < 0:
            return text
    return text[start + 1 :]


def first_characters(text: str, most: int) -> str:
    """The first `most` characters, fewer if they would end inside a sequence that is shown as one character."""
    return text[: _border(text, max(0, most), -1)] if most < len(text) else text


def last_characters(text: str, most: int) -> str:
    """The last `most` characters, fewer if they would begin inside a sequence that is shown as one character."""
    return text[_border(text, len(text) - max(0, most), 1) :] if most < len(text) else text


def first_bytes(text: str, most: int) -> str:
    """The longest start of at most `most` UTF-8 bytes that ends between characters."""
    return _most_bytes(text, most, first_characters)


def last_bytes(text: str, most: int) -> str:
    """The longest end of at most `most` UTF-8 bytes that begins between characters."""
    return _most_bytes(text, most, last_characters)


def _most_bytes(text: str, most: int, take: Take) -> str:
    if text.isascii():
        return take(text, most)
    sizes = range(1, min(len(text), most) + 1)
    return take(text, bisect_right(sizes, most, key=lambda size: byte_length(take(text, size))))


def within_tokens(text: str, most: int, count: Count) -> bool:
    """Whether a text has at most `most` tokens. Counts only the beginning of a text far above the limit, and nothing of
    a text far below it."""
    if MAX_TOKENS_PER_BYTE * byte_length(text) <= most:
        return True
    tokens = pieces = 0
    for start in range(0, len(text), COUNTED_PIECE):
        tokens += count(text[start : start + COUNTED_PIECE])
        pieces += 1
        if tokens > most + SEAM_TOKENS * (pieces - 1):
            break
    if abs(tokens - most) <= SEAM_TOKENS * (pieces - 1):
        return count(text) <= most
    return tokens <= most


def first_tokens(text: str, most: int, count: Count) -> str:
    """About the longest start of at most `most` tokens, with at most 16 characters for each."""
    return _most_tokens(text, most, count, first_characters)


def last_tokens(text: str, most: int, count: Count) -> str:
    """About the longest end of at most `most` tokens, with at most 16 characters for each."""
    return _most_tokens(text, most, count, last_characters)


def _most_tokens(text: str, most: int, count: Count, take: Take) -> str:
    if most <= 0:
        return ""
    longest = min(len(text), MAX_CHARACTERS_PER_TOKEN * most)
    low, high = 0, longest + 1
    size = min(longest, 4 * most)  # about what English text has for each token
    for step in range(MAX_COUNTS):
        tokens = count(take(text, size))
        if tokens <= most:
            low = size
        else:
            high = size
        if high - low <= 1 + low // 200 or most * 0.99 < tokens <= most:
            break
        size = size * most // max(1, tokens)
        # Scaling by the last count is fast on even text; every third step halves, so that no text is slow.
        if not low < size < high or step % 3 == 2:
            size = (low + high) // 2
    return take(text, low)


def _border(text: str, index: int, step: int) -> int:
    """The nearest index, from this one on in steps of -1 or 1, that does not split a sequence shown as one
    character."""
    for border in range(index, index + step * MAX_SEQUENCE_LENGTH, step):
        if not _joined(text, border):
            return border
    return index + step * is_pair(text, index)


def _joined(text: str, index: int) -> bool:
    """Whether the characters before and after this index are shown as one: a letter and its marks, the parts of an
    emoji, a carriage return and a line feed, the halves of a surrogate pair."""
    if not 0 < index < len(text):
        return False
    before, after = text[index - 1], text[index]
    if after.isascii():
        return before == "\r" and after == "\n"
    return (
        _ZERO_WIDTH_JOINER in (before, after)
        or unicodedata.combining(after) != 0
        or _VARIATIONS[0] <= after <= _VARIATIONS[1]
        or _SKIN_TONES[0] <= after <= _SKIN_TONES[1]
        or is_pair(text, index)
    )


def is_pair(text: str, index: int) -> bool:
    """Whether this index splits a surrogate pair that is kept as two characters."""
    return 0 < index < len(text) and "\ud800" <= text[index - 1] <= "\udbff" and "\udc00" <= text[index] <= "\udfff"
