"""Refills: what filled the window again after a compaction, whether the window is too small, when to try again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from contextstash.safety.sanitize import one_line
from contextstash_storage.records import Event, Output, Part

RAPID_MESSAGES = 10
"""A compaction within so many messages of the one before is a rapid one: five calls with their results. The summary,
and reading again what it left out, then cost more than the smaller requests save."""

MIN_RAPID = 2
"""Rapid compactions after which the window is called too small: one may be due to a single large output."""

LARGER = 1.5
"""Times the window: the next size to try, about the step between the sizes that `advise` compares."""


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
    return (
        f"The window was full again within {RAPID_MESSAGES} messages of a compaction, {rapid} times: {window:,} tokens"
        f" are too few for this work. Try a larger one (--window {round(window * LARGER, -3) // 1_000:.0f}k), fewer"
        " tools, or a shorter system prompt."
    )


UNRECORDED = "unrecorded"
"""Counted by the provider and not recorded: system prompt, tool definitions and other unlogged text."""

LARGE_OUTPUT = 0.2
"""A single output is named if it is at least this share of the growth."""

MAX_PARTS_NAMED = 5
"""Further parts are summed up, so that the sentence stays readable."""

_NAMES: Mapping[str, str] = {
    Part.SYSTEM: "system messages",
    Part.USER: "user",
    Part.ASSISTANT: "assistant",
    Part.THINKING: "thinking",
    Part.TOOL_CALLS: "tool calls",
    Part.TOOL_RESULTS: "tool results",
    Part.IMAGES: "images and documents",
    Part.ARCHIVED: "placeholders of archived outputs",
    Part.SUMMARIES: "summaries",
    UNRECORDED: "system prompt, tool definitions and other unlogged text",
}


def refill_sentence(
    then: Mapping[str, int], now: Mapping[str, int], *, messages: int, outputs: Sequence[Output] = ()
) -> str | None:
    """What was added to a view since a compaction, `messages` messages ago, by part, the largest first; None if nothing
    was. `then` and `now` are its tokens by part; `outputs` are those since then: the largest is named if it is at least
    a fifth of what was added, and not larger than all tool results, which it would be if it had left the view."""
    parts = sorted(
        ((name, now[name] - then.get(name, 0)) for name in now if now[name] > then.get(name, 0)),
        key=lambda part: (-part[1], part[0]),
    )
    if not parts:
        return None
    total, results = sum(tokens for _, tokens in parts), dict(parts).get(Part.TOOL_RESULTS, 0)
    largest = max((each for each in outputs if LARGE_OUTPUT * total <= each.tokens <= results), key=_size, default=None)
    named = [_named(name, tokens, largest) for name, tokens in parts[:MAX_PARTS_NAMED]]
    rest = sum(tokens for _, tokens in parts[MAX_PARTS_NAMED:])
    named += [f"other {rest:,}"] if rest else []
    ago = f"{messages:,} message{'' if messages == 1 else 's'} ago"
    return f"Since the last compaction, {ago}, {total:,} tokens were added: {', '.join(named)}."


def _size(output: Output) -> tuple[int, int]:
    return output.tokens, output.seq


def _named(part: str, tokens: int, largest: Output | None) -> str:
    name = _NAMES.get(part) or one_line(part, 40)
    if part != Part.TOOL_RESULTS or largest is None:
        return f"{name} {tokens:,}"
    return f"{name} {tokens:,} ({largest.handle} of {one_line(largest.tool, 40)} alone {largest.tokens:,})"


LITTLE, MUCH = 0.05, 0.10
"""Shares of the usable window: a compaction that saved less than the first makes the next one wait, one that saved the
second or more ends the wait; one in between changes nothing."""

MAX_WAIT = 0.40
"""The longest wait, as growth in shares of the usable window. It begins with LITTLE and doubles with each compaction
that saves too little; with a longer one the context would grow further before it is reduced."""


def worth_trying(attempts: Sequence[Event], tokens: int, messages: int, usable: int) -> bool:
    """Whether another compaction may save enough after these `attempts`, the oldest first: whether the context, which
    now has so many `tokens` and `messages`, has grown enough since the last one. One that exceeds `usable` cannot wait
    for growth: then 10 further messages are enough."""
    wait = 0.0
    for attempt in attempts:
        saved = attempt.tokens_before - attempt.tokens_after
        if saved >= MUCH * usable:
            wait = 0.0
        elif saved < LITTLE * usable:
            wait = min(MAX_WAIT, 2 * wait or LITTLE)
    if not wait:
        return True
    last = attempts[-1]
    if tokens > usable and messages - last.seq >= RAPID_MESSAGES:
        return True
    return messages > last.seq and tokens - last.tokens_after >= wait * usable
