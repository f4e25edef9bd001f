"""Numbers for a reader: with their nouns, with an arrow between two, or short."""

from __future__ import annotations


def before_and_after(before: int, after: int) -> str:
    """For example `12,000 → 8,000`."""
    return f"{before:,} → {after:,}"


def counted(number: float, noun: str) -> str:
    """A number and its noun: 1 session, 2 sessions, 2 matches."""
    return f"{number:,} {noun}{'' if number == 1 else 'es' if noun.endswith('ch') else 's'}"


def amount(number: float) -> str:
    """A number in at most six characters: 950, 9.5k, 68k, 1.2M."""
    if number < 1_000:
        return f"{number:.0f}"
    thousand = number / 1_000
    if thousand < 999.5:
        return f"{thousand:.1f}k" if thousand < 9.95 else f"{thousand:.0f}k"
    million = thousand / 1_000
    return f"{million:.1f}M" if million < 999.95 else f"{million / 1_000:.1f}B"
