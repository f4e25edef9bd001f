"""The totals of one proxy process."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Totals:
    """What this process did, for the line at its end."""

    requests: int = 0
    edited: int = 0
    faults: int = 0
    sessions: set[str] = field(default_factory=set)
