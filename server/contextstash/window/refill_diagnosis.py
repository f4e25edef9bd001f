"""The growth of the window since the last prune or compaction: by part, the largest output, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from contextstash.safety.sanitize import one_line
from contextstash_storage.records import Event, Output, Part

RAPID_MESSAGES = 10
"""A compaction within so many messages of the one before is a rapid one: five calls with their results. The
summary, and reading again what it left out, then cost more than the smaller requests save."""

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
    larger = round(window * LARGER, -3)
    return (
        f"The window was full again within {RAPID_MESSAGES} messages of a compaction, {rapid} times: {window:,} tokens"
        f" are too few for this work. Try --window {larger // 1_000:.0f}k."
    )


UNRECORDED = "unrecorded"
"""Counted by the provider and not recorded: system prompt, tool definitions and other unlogged text."""

LARGE_OUTPUT = 0.2
"""A single output is named if it is at least this share of the growth."""

DOMINANT = 0.5
"""A part is the cause, and gets advice, if it is at least this share of the growth: then no other part is larger."""

MAX_PARTS_NAMED = 5
"""Further parts are summed up, so that the sentence stays readable."""


@dataclass(frozen=True, slots=True)
class Refill:
    """The added content: `tokens` in total, `parts` of it, largest first (values of `Part`, and `unrecorded`), in
    `messages` messages. Parts that shrank are omitted, so that `parts` add up to `tokens`. `largest` is the tool, the
    handle and the tokens of the largest output, if it is at least a fifth of `tokens`."""

    tokens: int
    messages: int
    parts: tuple[tuple[str, int], ...]
    largest: tuple[str, str, int] | None


def refill_of(
    then: Mapping[str, int], now: Mapping[str, int], *, messages: int, outputs: Sequence[Output] = ()
) -> Refill:
    """Compares the view's tokens by part just after a prune or compaction (`then`) with those `now`.

    `messages` is how many were recorded since; `outputs` are the tool outputs since then that are shown whole. An
    output larger than the growth of all tool results cannot be in the view any more, and is not named.
    """
    grown = {str(part): now[part] - then.get(part, 0) for part in now}
    parts = sorted(
        ((part, tokens) for part, tokens in grown.items() if tokens > 0), key=lambda item: (-item[1], item[0])
    )
    total = sum(tokens for _, tokens in parts)
    growth = dict(parts).get(Part.TOOL_RESULTS, 0)
    shown = [output for output in outputs if output.tokens <= growth]
    largest = max(shown, key=lambda output: (output.tokens, output.seq), default=None)
    named = largest and largest.tokens > 0 and largest.tokens >= LARGE_OUTPUT * total
    return Refill(
        tokens=total,
        messages=messages,
        parts=tuple(parts),
        largest=(largest.tool, largest.handle, largest.tokens) if largest and named else None,
    )


def refill_sentence(refill: Refill, *, since: str = "compaction") -> str:
    """The refill of the window in words, with advice if one part is at least half of it. `since` names what last
    reduced it: compaction or prune."""
    ago = f"{refill.messages:,} message{'' if refill.messages == 1 else 's'} ago"
    if not refill.parts:
        return f"Since the last {since}, {ago}, nothing was added."
    named = [_named(part, tokens, refill) for part, tokens in refill.parts[:MAX_PARTS_NAMED]]
    rest = sum(tokens for _, tokens in refill.parts[MAX_PARTS_NAMED:])
    named += [f"other {rest:,}"] if rest else []
    added = f"Since the last {since}, {ago}, {refill.tokens:,} tokens were added: {', '.join(named)}."
    return " ".join(filter(None, (added, _advice(refill))))


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


def _named(part: str, tokens: int, refill: Refill) -> str:
    name = _NAMES.get(part) or one_line(part, 40)
    if part != Part.TOOL_RESULTS or refill.largest is None:
        return f"{name} {tokens:,}"
    tool, handle, size = refill.largest
    return f"{name} {tokens:,} ({handle} of {one_line(tool, 40)} alone {size:,})"


_ADVICE: Mapping[str, str] = {
    Part.SYSTEM: "Every compaction keeps the system messages: shorten them.",
    UNRECORDED: "No compaction reduces it: connect fewer MCP servers, offer fewer tools, or shorten the system"
    " prompt and the instruction files that are part of it.",
    Part.USER: "Provide long material as files that are read in parts, instead of pasting it.",
    Part.ASSISTANT: "Ask for shorter replies, or set a lower compaction threshold.",
    Part.THINKING: "Lower the thinking budget or effort.",
    Part.TOOL_CALLS: "Edit files in place instead of writing them whole: the arguments of calls fill the window.",
    Part.TOOL_RESULTS: "Many outputs add up: archive them with prune_tool_outputs, or limit the size of one output.",
    Part.IMAGES: "Send fewer or smaller images and documents.",
    Part.ARCHIVED: "Placeholders add up: a compaction replaces them with one summary.",
    Part.SUMMARIES: "Summaries add up: merge them, or request shorter ones.",
}


def _advice(refill: Refill) -> str:
    """Advice on the part that is at least half of what was added; empty if there is none."""
    part, tokens = refill.parts[0]
    if refill.largest and refill.largest[2] >= DOMINANT * refill.tokens:
        tool = one_line(refill.largest[0], 40)
        return f"One output is most of it: limit the output of {tool}, or read it in parts."
    return _ADVICE.get(part, "") if tokens >= DOMINANT * refill.tokens else ""
