"""What an agent needs at a point of its session: facts that it learned before and will write soon."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .sessions import Said

LATER_MESSAGES = 60
"""How far ahead a use of a fact counts, in messages: about the length of one task of a coding agent."""

RECENT_MESSAGES = 10
"""A fact seen in as many newest messages is left out: every policy keeps it."""

MIN_FACTS = 3
"""Points at which fewer facts are needed are not measured, as their share would be noise."""

MIN_MESSAGES_AFTER = 20
"""There must be more messages than these after a point, so that something can be needed."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A point after message `at`, the facts needed there, and the tokens of the session so far."""

    at: int
    needed: frozenset[str]
    tokens: int


def needed_at(messages: Sequence[Said], at: int) -> frozenset[str]:
    """Facts that a tool result showed up to `at`, that the newest messages and the user's do not show, and that the
    agent writes later before anything shows them again."""
    before = messages[: at + 1]
    learned: set[str] = set()
    known: set[str] = set()
    for place, message in enumerate(before):
        if message.role == "tool":
            learned |= message.facts
        elif message.role != "assistant":
            known |= message.facts
        if place > at - RECENT_MESSAGES:
            known |= message.facts
    found: set[str] = set()
    for message in messages[at + 1 : at + 1 + LATER_MESSAGES]:
        if message.role == "assistant":
            found |= (message.facts & learned) - known
        known |= message.facts
    return frozenset(found)


def cuts_at(messages: Sequence[Said], budget: int) -> Iterator[Cut]:
    """Points at which a session no longer fits its budget: the first at twice the budget, then one a budget."""
    total, following = 0, 2 * budget
    for place, message in enumerate(messages):
        total += message.tokens
        if total < following or message.role == "assistant" or place + MIN_MESSAGES_AFTER >= len(messages):
            continue
        following = total + budget
        needed = needed_at(messages, place)
        if len(needed) >= MIN_FACTS:
            yield Cut(place, needed, total)
