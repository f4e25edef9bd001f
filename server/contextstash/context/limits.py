"""Limits on one output: by lines, then characters, then bytes; from the head, both ends, or middle out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from contextstash.context.oneline import one_line

CHARACTERS_PER_TOKEN = 4
"""The rule of thumb by which `middle_out` turns tokens into characters."""

MARKER_ROOM = 50
"""What `middle_out` leaves free on each side for its notice, in characters or bytes."""


@dataclass(frozen=True, slots=True)
class Limited:
    """A text within limits. `text` includes the notice; `lines`, `characters` and `bytes` (UTF-8) are what
    was left out, 0 where nothing was cut. The notice is left out of `text` where it alone would not fit."""

    text: str
    cut: bool = False
    notice: str = ""
    lines: int = 0
    characters: int = 0
    bytes: int = 0


def byte_length(text: str) -> int:
    """Length in UTF-8; a lone surrogate counts three bytes."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def middle_out(text: str, *, max_tokens: int | None = None, max_bytes: int | None = None) -> Limited:
    """The text, or its start and end with a notice between them.

    The first and last `limit // 2 - 50` are kept, in characters (4 a token) for `max_tokens` and in UTF-8
    bytes for `max_bytes`; never a part of a character. The result is never longer than the limit. Exactly
    one of the two limits must be given.
    """
    if (max_tokens is None) == (max_bytes is None):
        raise TypeError("middle_out takes max_tokens or max_bytes")
    if max_bytes is not None:
        return _middle(text, max_bytes, byte_length, _bytes_from_start, _bytes_from_end)
    most = (max_tokens or 0) * CHARACTERS_PER_TOKEN
    return _middle(text, most, len, _characters_from_start, _characters_from_end)


Cut = Callable[[str, int], str]


def _middle(text: str, most: int, measure: Callable[[str], int], start: Cut, end: Cut) -> Limited:
    if measure(text) <= most:
        return Limited(text)
    keep = most // 2 - MARKER_ROOM
    if keep <= 0:
        return _described(text, start(text, max(0, most)), "", "")
    return _described(text, start(text, keep), end(text, keep), "middle")


def _described(text: str, first: str, last: str, where: str) -> Limited:
    gone = text[len(first) : len(text) - len(last)]
    lines, characters, size = gone.count("\n"), len(gone), byte_length(gone)
    notice = f"[… {characters:,} characters cut from the {where} …]" if where else ""
    between = f"\n\n{notice}\n\n" if where else ""
    return Limited(first + between + last, True, notice, lines, characters, size)


def _pair_at(text: str, index: int) -> bool:
    """Whether a surrogate pair, kept as two characters, lies across this index."""
    return 0 < index < len(text) and "\ud800" <= text[index - 1] <= "\udbff" and "\udc00" <= text[index] <= "\udfff"


def _characters_from_start(text: str, most: int) -> str:
    return text[: most - 1] if _pair_at(text, most) else text[:most]


def _characters_from_end(text: str, most: int) -> str:
    index = max(0, len(text) - most)
    return text[index + 1 :] if _pair_at(text, index) else text[index:]


def _bytes_from_start(text: str, most: int) -> str:
    data = text[:most].encode("utf-8", "surrogatepass")
    end = min(most, len(data))
    while 0 < end < len(data) and data[end] & 0xC0 == 0x80:
        end -= 1
    kept = len(data[:end].decode("utf-8", "surrogatepass"))
    return text[: kept - 1] if _pair_at(text, kept) else text[:kept]


def _bytes_from_end(text: str, most: int) -> str:
    data = text[max(0, len(text) - most) :].encode("utf-8", "surrogatepass")
    start = max(0, len(data) - most)
    while start < len(data) and data[start] & 0xC0 == 0x80:
        start += 1
    kept = len(data[start:].decode("utf-8", "surrogatepass"))
    index = len(text) - kept
    return text[index + 1 :] if _pair_at(text, index) else text[index:]


Keep = Literal["head", "head_tail"]

NOTICE_ROOM = 80
"""Longest notice of `limit_output` with its line ends, in characters and bytes."""


def limit_output(
    text: str,
    *,
    max_lines: int | None = None,
    max_chars: int | None = None,
    max_bytes: int | None = None,
    keep: Keep = "head_tail",
) -> Limited:
    """The text within all the limits given, by lines first, then characters, then bytes.

    `head` keeps the start, `head_tail` half of the room at each end. A notice stands on its own line where
    the cut is and counts against every limit; limits too small for one get the bare start.
    """
    limits = (
        _Limit(max_lines, *_BY_LINES),
        _Limit(max_chars, *_BY_CHARACTERS),
        _Limit(max_bytes, *_BY_BYTES),
    )
    if all(limit.holds(text) for limit in limits):
        return Limited(text)
    if any(limit.most is not None and limit.most <= limit.notice_room for limit in limits):
        first = text
        for limit in limits:
            first = first if limit.most is None else limit.start(first, max(0, limit.most))
        return _described(text, first, "", "")
    first, last = _ends(text, limits, keep)
    gone = text[len(first) : len(text) - len(last)]
    notice = f"[… {len(gone):,} characters, {gone.count(chr(10)):,} line ends cut …]"
    shown = first + "\n" * (not first.endswith("\n")) + notice + ("\n" + last if last else "")
    return Limited(shown, True, notice, gone.count("\n"), len(gone), byte_length(gone))


def _ends(text: str, limits: Iterable[_Limit], keep: Keep) -> tuple[str, str]:
    """The start and the end to show, with room for a notice left within each limit."""
    first = last = text
    whole = True
    for limit in limits:
        if limit.most is None:
            continue
        room = limit.most - limit.notice_room
        size = limit.measure(text) if whole else limit.measure(first) + limit.measure(last)
        if size > room:
            tail = room // 2 if keep == "head_tail" else 0
            first, last = limit.start(first, room - tail), limit.end(last, tail)
            whole = False
    return first, last


@dataclass(frozen=True, slots=True)
class _Limit:
    """`most` units, how they are measured and cut, and how many of them a notice takes."""

    most: int | None
    measure: Callable[[str], int]
    start: Cut
    end: Cut
    notice_room: int

    def holds(self, text: str) -> bool:
        return self.most is None or self.measure(text) <= self.most


def line_count(text: str) -> int:
    """Lines as they are counted everywhere: line feeds, and a last line without one."""
    return text.count("\n") + (bool(text) and not text.endswith("\n"))


def _lines_from_start(text: str, most: int) -> str:
    return "".join(line_list(text)[:most])


def _lines_from_end(text: str, most: int) -> str:
    lines = line_list(text)
    return "".join(lines[len(lines) - most :]) if most < len(lines) else text


def line_list(text: str) -> list[str]:
    """The lines with their line feeds; joined they are the text again."""
    lines = [f"{line}\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


_BY_LINES = (line_count, _lines_from_start, _lines_from_end, 2)
_BY_CHARACTERS = (len, _characters_from_start, _characters_from_end, NOTICE_ROOM)
_BY_BYTES = (byte_length, _bytes_from_start, _bytes_from_end, NOTICE_ROOM)


_TELLING = re.compile(
    r"\b(?:error|exception|traceback|fail(?:ed|ure|ures|ing)?|fatal|panic(?:ked)?|assert\w*|denied|refused"
    r"|not found|no such|undefined|unexpected|cannot|warning|critical)\b|\w(?:Error|Exception)\b",
    re.IGNORECASE,
)
_CLOSING = re.compile(
    r"\b\d[\d,]* (?:passed|failed|errors?|warnings?|tests?|files? changed|problems?|matches)\b"
    r"|^\s*(?:total|summary|result|tests?)\b[: ]|\bexit(?:ed with)? (?:code|status)\b",
    re.IGNORECASE,
)
SCANNED_LINE = 1_000
"""Characters of a line that are looked at for what matters."""

SCANNED_LINES = 50_000


def important_lines(text: str, budget_chars: int) -> str:
    """The lines of an output that matter most: its summary line, then errors, in their order, each line once,
    line numbers before them. At most `budget_chars` characters; empty where there are none."""
    lines = text.split("\n", SCANNED_LINES)[:SCANNED_LINES]
    ranked: list[tuple[int, int, str]] = []
    seen: set[str] = set()
    for number, line in enumerate(lines, 1):
        shown = one_line(line[:SCANNED_LINE], 200)
        rank = 0 if _CLOSING.search(shown) else 1 if _TELLING.search(shown) else 2
        if rank < 2 and shown not in seen:
            seen.add(shown)
            ranked.append((rank, -number if rank == 0 else number, f"{number}: {shown}"))
    chosen: list[tuple[int, str]] = []
    room = budget_chars
    for _, number, shown in sorted(ranked):
        if len(shown) + 1 <= room:
            chosen.append((abs(number), shown))
            room -= len(shown) + 1
    return "\n".join(shown for _, shown in sorted(chosen))
