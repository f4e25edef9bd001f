"""Numbers of things in words."""

from __future__ import annotations


def counted(number: float, noun: str) -> str:
    """A number and its noun: 1 session, 2 sessions."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
