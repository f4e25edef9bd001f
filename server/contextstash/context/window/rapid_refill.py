"""Whether a window is too small: it is full again a few turns after each compaction."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from contextstash_storage.records import Event

RAPID_MESSAGES = 10
"""A compaction within so many messages of the one before is a rapid one: five calls with their results. A guess: the
summary, and reading again what it left out, then cost more than the smaller requests save."""

MIN_RAPID = 2
"""Rapid compactions after which the window is called too small: one may be due to a single large output. A guess."""

LARGER = 1.5
"""Times the window: the next size to try. A guess, about the step between the sizes that `advise` compares."""


def compactions_of(events: Sequence[Event]) -> list[int]:
    """The positions in a session at which its client compacted: where its new windows got their hand-offs, or, of a
    session whose transcript was read, where the summaries are."""
    given = [event.seq for event in events if event.kind == "handoff"]
    return given or [event.seq for event in events if event.kind == "compaction"]


def rapid_compactions(positions: Sequence[int]) -> int:
    """How many of the compactions, given by the positions of their summaries, came shortly after the one before."""
    return sum(after - before <= RAPID_MESSAGES for before, after in pairwise(sorted(positions)))


def refill_advice(rapid: int, window: int) -> str | None:
    """What to say about a window, in tokens, with so many rapid compactions; None if it is large enough."""
    if rapid < MIN_RAPID:
        return None
    larger = round(window * LARGER, -3)
    return (
        f"The window was full again within {RAPID_MESSAGES} messages of a compaction, {rapid} times: {window:,} tokens"
        f" are too few for this work. Try --window {larger // 1_000:.0f}k."
    )
