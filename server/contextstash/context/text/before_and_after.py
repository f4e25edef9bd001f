"""The one notation for a number before and after a change."""

from __future__ import annotations


def before_and_after(before: int, after: int) -> str:
    """For example `12,000 → 8,000`."""
    return f"{before:,} → {after:,}"
