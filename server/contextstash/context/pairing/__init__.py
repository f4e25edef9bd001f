"""The providers' rules for message lists: where a list may be cut.

Cut `i` is between messages `i - 1` and `i`. Each property below checks one rule, in a file of its own, and returns the
cuts that the rule forbids; a cut that no property forbids is safe.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from contextstash.context.pairing.cuts import (
    cuts_after_lone_thinking,
    cuts_before_results,
    cuts_inside_open_loops,
    cuts_inside_replies,
    cuts_inside_tool_calls,
)
from contextstash_storage.records import Message

Property = Callable[[Sequence[Message]], set[int]]

PROPERTIES: tuple[Property, ...] = (
    cuts_inside_tool_calls,
    cuts_before_results,
    cuts_after_lone_thinking,
    cuts_inside_replies,
    cuts_inside_open_loops,
)
"""Each returns the cuts that it forbids, in time linear in the number of blocks."""


def safe_cuts(messages: Sequence[Message]) -> list[int]:
    """Where the list may be cut so that both parts are as valid as the whole, in ascending order; includes 0 and the
    length if they are safe. A part that begins with the assistant needs a user message (a summary) before it."""
    forbidden: set[int] = set()
    for cuts_forbidden in PROPERTIES:
        forbidden |= cuts_forbidden(messages)
    return [cut for cut in range(len(messages) + 1) if cut not in forbidden]
