"""How a change of a number is written, the same everywhere."""

from __future__ import annotations


def before_and_after(before: int, after: int) -> str:
    """`12,000 -> 8,000`."""
    return f"{before:,} -> {after:,}"
