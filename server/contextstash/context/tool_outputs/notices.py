"""Notices: what is said where a part of an output was cut."""

from __future__ import annotations

from dataclasses import dataclass

from contextstash.context.text.sanitize import MARKER
from contextstash.context.text.truncate import byte_length, line_count
from contextstash.context.tool_outputs.measures import Unit

MAX_MIDDLE_LENGTH = 96
"""Room for the middle-out notice between its line ends, in characters and bytes."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What is shown of a text: its first `head` and last `tail` characters and the notice. `lines` (line ends),
    `characters` and `bytes` (UTF-8) stood between them."""

    text: str
    notice: str
    head: int
    tail: int
    lines: int
    characters: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Between:
    """What stands between the two ends that are shown of a text."""

    lines: int
    characters: int
    bytes: int

    def amount(self, unit: Unit) -> str:
        """How much it is, in words: lines, and bytes if these were the limit, else characters."""
        size = f"{self.bytes:,} bytes" if unit == "bytes" else f"{self.characters:,} characters"
        return f"{self.lines:,} line{'s' * (self.lines != 1)}, {size}" if self.lines else size


def between(text: str, first: str, last: str) -> Between:
    """What of a text is not in its two ends."""
    gone = text[len(first) : len(text) - len(last)]
    return Between(gone.count("\n"), len(gone), byte_length(gone))


@dataclass(frozen=True, slots=True)
class Wording:
    """How the cuts of one text are told. `unit` is that of the first limit it was over; `handle` is where the whole
    is kept, empty if it is kept nowhere."""

    text: str
    unit: Unit = "characters"
    handle: str = ""

    def head(self, first: str, last: str) -> Shown:
        """The start, and how much of the whole it is."""
        if self.unit == "lines":
            extent = f"{line_count(first):,} of {line_count(self.text):,} lines"
        elif self.unit == "bytes":
            extent = f"{byte_length(first):,} of {byte_length(self.text):,} bytes"
        else:
            extent = f"{len(first):,} of {len(self.text):,} characters"
        notice = f"{MARKER}: cut after the first {extent}{self._whole()}]"
        return self._shown(f"{_ended(first)}{notice}", notice, first, last)

    def head_tail(self, first: str, last: str) -> Shown:
        """Both ends, a mark where the cut is, and at the end how much was cut."""
        gone = between(self.text, first, last)
        mark = f"{MARKER}: {gone.amount('characters') if not gone.lines else f'{gone.lines:,} lines'} cut here]"
        of = f"{line_count(self.text):,} lines, " if gone.lines else ""
        notice = f"{MARKER}: {gone.amount(self.unit)} of {of}{self._size()} cut{self._whole()}]"
        return self._shown(f"{_ended(first)}{mark}\n{_ended(last)}{notice}", notice, first, last)

    def middle(self, first: str, last: str) -> Shown:
        """Both ends, and between them how much was cut."""
        gone = between(self.text, first, last)
        notice = f"{MARKER}: {gone.amount(self.unit)} cut here{self._whole()}]"
        if len(notice) > MAX_MIDDLE_LENGTH:
            notice = f"{MARKER}: {gone.characters:,} characters cut{self._whole()}]"
        return self._shown(f"{first}\n\n{notice}\n\n{last}", notice, first, last)

    def preview(self, sha256: str, first: str, last: str) -> Shown:
        """Size, checksum and handle of an output that is too large, then its two ends."""
        lines = line_count(self.text)
        size = f"{len(self.text):,} characters, {byte_length(self.text):,} bytes, {lines:,} line{'s' * (lines != 1)}"
        notice = f"{MARKER}: too large to show, {size}, SHA-256 {sha256}{self._whole()}; its two ends:]"
        mark = f"{MARKER}: {between(self.text, first, last).amount('characters')} cut here]"
        return self._shown(f"{notice}\n{_ended(first)}{mark}\n{last}", notice, first, last)

    def telling(self, lines: str, first: str, last: str) -> Shown:
        """Both ends, and between them the lines that matter of what was cut."""
        gone = between(self.text, first, last)
        said = f"{MARKER}: {gone.amount(self.unit)} cut here{self._whole()}"
        if not lines:
            notice = f"{said}]"
            return self._shown(f"{_ended(first)}{notice}\n{last}", notice, first, last)
        notice = f"{said}; what matters of it:]"
        on = f"{MARKER}: from line {self.text.count(chr(10), 0, len(self.text) - len(last)) + 1:,} on:]"
        return self._shown(f"{_ended(first)}{notice}\n{lines}\n{on}\n{last}", notice, first, last)

    def brief(self, first: str, last: str) -> Shown:
        """The start and the least that can be said, on the start's last line."""
        notice = f"{MARKER}: cut{self._whole()}]"
        kept = first.rstrip()
        return self._shown(f"{kept} {notice}" if kept else notice, notice, first, last)

    def bare(self, first: str, last: str) -> Shown:
        """The ends and not a word."""
        return self._shown(first + last, "", first, last)

    def _whole(self) -> str:
        return f"; whole output: {self.handle}" if self.handle else ""

    def _size(self) -> str:
        return f"{byte_length(self.text):,} bytes" if self.unit == "bytes" else f"{len(self.text):,} characters"

    def _shown(self, shown: str, notice: str, first: str, last: str) -> Shown:
        gone = between(self.text, first, last)
        return Shown(shown, notice, len(first), len(last), gone.lines, gone.characters, gone.bytes)


def _ended(text: str) -> str:
    """The text with a line feed at its end, if it is any."""
    return text if not text or text.endswith("\n") else f"{text}\n"
