"""The reach of requests: of a view that is far larger than the window, the newest part, which a request could show.

What is older can be in no request, whatever becomes a placeholder in the newer part: it would be left out. So a request
or a prune needs not to read it, and takes the same time however long the session is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from contextstash.view.view import Entry
from contextstash.window.settings import DESCRIBED, ContextSettings
from contextstash.window.token_counters import Counter
from contextstash_storage.records import Part

MANY_WINDOWS = 2
"""A view of at most so many times the budget is read whole. That takes about as long as the request itself."""

SHORTEST_PLACEHOLDER = 20
"""No placeholder of our own wording takes fewer tokens; most take about 50."""


@dataclass(frozen=True, slots=True)
class Beyond:
    """Messages of the view beyond the reach, `first_seq..last_seq`: how many they are, how many tool results they show,
    and their tokens by part."""

    first_seq: int
    last_seq: int
    messages: int
    results: int
    parts: Mapping[Part, int] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        return sum(self.parts.values())


def smallest_tokens(entry: Entry, placeholder: int) -> int:
    """The fewest tokens that an entry takes once its outputs are placeholders of at least `placeholder` tokens and its
    thinking is stripped."""
    if entry.message is None:
        return entry.edit.tokens
    total = 0
    for index, block in enumerate(entry.message.blocks):
        if block.type == "tool_result":
            shown = entry.replaced.get(index)
            total += min(placeholder, shown.tokens if shown else block.tokens)
        elif block.type in ("text", "tool_call"):
            total += block.tokens
    return total


def smallest_placeholder(settings: ContextSettings, counter: Counter) -> int:
    """The fewest tokens that a placeholder takes; one in the user's own words can be empty."""
    return (SHORTEST_PLACEHOLDER if settings.placeholder == DESCRIBED else 0) + counter.result_overhead
