"""Numbers with their nouns, and two of them with an arrow between."""

from __future__ import annotations


def before_and_after(before: int, after: int) -> str:
    """For example `12,000 → 8,000`."""
    return f"{before:,} → {after:,}"


def counted(number: float, noun: str) -> str:
    """A number and its noun: 1 session, 2 sessions."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
