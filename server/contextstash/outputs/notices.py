"""Notices: the text that replaces the part of an output that was cut."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from contextstash.outputs.measures import Unit
from contextstash.outputs.truncate import byte_length, line_count
from contextstash.safety.sanitize import MARKER

MAX_MIDDLE_LENGTH = 96
"""Longest notice of the middle-out cut, in characters. With its four line ends it takes 100: the 50 characters that
the cut leaves free on each side (`layouts.MIDDLE_NOTICE_RESERVE`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Omission:
    """How much is left out between the head and the tail of a text: line ends, characters, and bytes in UTF-8."""

    lines: int = 0
    characters: int = 0
    bytes: int = 0

    def amount(self, unit: Unit) -> str:
        """The size in words: the lines, and the bytes if the limit is in bytes, else the characters."""
        size = f"{self.bytes:,} bytes" if unit == "bytes" else f"{self.characters:,} characters"
        return f"{self.lines:,} line{'s' * (self.lines != 1)}, {size}" if self.lines else size


@dataclass(frozen=True, slots=True)
class Limited(Omission):
    """A text within its limits; if it was `cut`, its first `head` and last `tail` characters with a notice, which
    `text` includes."""

    text: str
    cut: bool = False
    notice: str = ""
    spilled: bool = False
    head: int = 0
    tail: int = 0


def omission(text: str, first: str, last: str) -> Omission:
    """The part of a text that is in neither its head nor its tail."""
    gone = text[len(first) : len(text) - len(last)]
    return Omission(lines=gone.count("\n"), characters=len(gone), bytes=byte_length(gone))


@dataclass(frozen=True, slots=True)
class NoticeWriter:
    """Writes the excerpts of one text, each with its notice. `unit` is that of the first limit that the text exceeds;
    `handle` is where the whole text is archived, empty if it is not."""

    text: str
    unit: Unit = "characters"
    handle: str = ""

    def head(self, first: str, last: str) -> Limited:
        """The head, and how much of the whole text it is."""
        if self.unit == "lines":
            extent = f"{line_count(first):,} of {line_count(self.text):,} lines"
        elif self.unit == "bytes":
            extent = f"{byte_length(first):,} of {byte_length(self.text):,} bytes"
        else:
            extent = f"{len(first):,} of {len(self.text):,} characters"
        notice = f"{MARKER}: cut after the first {extent}{self._whole()}]"
        return self._excerpt(f"{_ended(first)}{notice}", notice, first, last)

    def head_tail(self, first: str, last: str) -> Limited:
        """Head and tail, a short mark at the cut, and the notice at the end."""
        gone = omission(self.text, first, last)
        cut = f"{MARKER}: {gone.amount('characters') if not gone.lines else f'{gone.lines:,} lines'} cut here]"
        of = f"{line_count(self.text):,} lines, " if gone.lines else ""
        notice = f"{MARKER}: {gone.amount(self.unit)} of {of}{self._size()} cut{self._whole()}]"
        return self._excerpt(f"{_ended(first)}{cut}\n{_ended(last)}{notice}", notice, first, last)

    def middle(self, first: str, last: str) -> Limited:
        """Head and tail, and the notice between them."""
        gone = omission(self.text, first, last)
        notice = f"{MARKER}: {gone.amount(self.unit)} cut here{self._whole()}]"
        if len(notice) > MAX_MIDDLE_LENGTH:
            notice = f"{MARKER}: {gone.characters:,} characters cut{self._whole()}]"
        return self._excerpt(f"{first}\n\n{notice}\n\n{last}", notice, first, last)

    def preview(self, sha256: str, first: str, last: str) -> Limited:
        """Size, checksum and handle of an output that is too large, then its head and tail."""
        lines = line_count(self.text)
        size = f"{len(self.text):,} characters, {byte_length(self.text):,} bytes, {lines:,} line{'s' * (lines != 1)}"
        notice = f"{MARKER}: too large to show, {size}, SHA-256 {sha256}{self._whole()}; head and tail:]"
        cut = f"{MARKER}: {omission(self.text, first, last).amount('characters')} cut here]"
        return self._excerpt(f"{notice}\n{_ended(first)}{cut}\n{last}", notice, first, last)

    def smart(self, lines: str, first: str, last: str) -> Limited:
        """Head and tail, and between them the relevant lines of what was cut."""
        gone = omission(self.text, first, last)
        start = f"{MARKER}: {gone.amount(self.unit)} cut here{self._whole()}"
        if not lines:
            notice = f"{start}]"
            return self._excerpt(f"{_ended(first)}{notice}\n{last}", notice, first, last)
        notice = f"{start}; the relevant lines:]"
        on = f"{MARKER}: from line {self.text.count(chr(10), 0, len(self.text) - len(last)) + 1:,} on:]"
        return self._excerpt(f"{_ended(first)}{notice}\n{lines}\n{on}\n{last}", notice, first, last)

    def brief(self, first: str, last: str) -> Limited:
        """The head and the shortest notice, on the head's last line."""
        notice = f"{MARKER}: cut{self._whole()}]"
        kept = first.rstrip()
        return self._excerpt(f"{kept} {notice}" if kept else notice, notice, first, last)

    def bare(self, first: str, last: str) -> Limited:
        """Head and tail without a notice."""
        return self._excerpt(first + last, "", first, last)

    def _whole(self) -> str:
        return f"; whole output: {self.handle}" if self.handle else ""

    def _size(self) -> str:
        return f"{byte_length(self.text):,} bytes" if self.unit == "bytes" else f"{len(self.text):,} characters"

    def _excerpt(self, shown: str, notice: str, first: str, last: str) -> Limited:
        gone = omission(self.text, first, last)
        return Limited(shown, True, notice, head=len(first), tail=len(last), **asdict(gone))


def _ended(text: str) -> str:
    """The text with a line feed at its end, unless it is empty."""
    return text if not text or text.endswith("\n") else f"{text}\n"
