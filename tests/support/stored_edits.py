"""Short ways to make edits: fields that do not matter for a test have default values."""

from __future__ import annotations

from typing import Any

from contextstash_storage.records import ArchiveEdit, SummaryEdit


def archiving(seq: int, **fields: Any) -> ArchiveEdit:
    """Archives the first block of a message."""
    usual: dict[str, Any] = {"block": 0, "handle": "out_a", "text": "gone", "tokens": 5}
    return ArchiveEdit(seq=seq, **{**usual, **fields})


def summarizing(first: int, last: int, **fields: Any) -> SummaryEdit:
    """Shows messages `first..last` as a summary."""
    usual: dict[str, Any] = {
        "summary_id": f"sum_{first}_{last}",
        "strategy": "extractive",
        "text": "…",
        "summary": "…",
        "tokens": 0,
    }
    return SummaryEdit(first_seq=first, last_seq=last, **{**usual, **fields})
