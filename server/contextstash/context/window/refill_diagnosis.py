"""What refilled the window since it was last emptied: by part, the largest output, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from contextstash.context.text.sanitize import one_line
from contextstash_storage.records import Output, Part

UNRECORDED = "unrecorded"
"""What the provider counts but nobody recorded: the host's system prompt and its tool definitions."""

LARGE_OUTPUT = 0.2
"""From this share of the growth on a single output is named."""

DOMINANT = 0.5
"""From this share of the growth on a part is what to do something about."""

PARTS_TOLD = 5


@dataclass(frozen=True, slots=True)
class Refill:
    """What came: `tokens` in all, by part in `parts`, largest first (values of `Part`, and `unrecorded`), with
    `messages` messages. Parts that shrank are left out, so that `parts` add up to `tokens`. `largest` is tool,
    handle and tokens of the largest output, if it is a fifth of that or more."""

    tokens: int
    messages: int
    parts: tuple[tuple[str, int], ...]
    largest: tuple[str, str, int] | None


def refill_of(
    then: Mapping[str, int], now: Mapping[str, int], *, messages: int, outputs: Sequence[Output] = ()
) -> Refill:
    """Compare the view's tokens by part just after a prune or compaction with those now.

    `messages` have been recorded since; `outputs` are the tool outputs that came since and are shown whole. One that
    is larger than all that tool results grew by cannot be in the view any more, and is not named.
    """
    grown = {str(part): now[part] - then.get(part, 0) for part in now}
    parts = sorted(
        ((part, tokens) for part, tokens in grown.items() if tokens > 0), key=lambda item: (-item[1], item[0])
    )
    total = sum(tokens for _, tokens in parts)
    room = dict(parts).get(Part.TOOL_RESULTS, 0)
    shown = [output for output in outputs if output.tokens <= room]
    largest = max(shown, key=lambda output: (output.tokens, output.seq), default=None)
    named = largest and largest.tokens > 0 and largest.tokens >= LARGE_OUTPUT * total
    return Refill(
        tokens=total,
        messages=messages,
        parts=tuple(parts),
        largest=(largest.tool, largest.handle, largest.tokens) if largest and named else None,
    )


def refill_sentence(refill: Refill, *, since: str = "compaction") -> str:
    """What refilled the window in words, and what helps if one part is half of it or more. `since` names what
    emptied it last: compaction or prune."""
    ago = f"{refill.messages:,} message{'' if refill.messages == 1 else 's'} ago"
    if not refill.parts:
        return f"Since the last {since}, {ago}, nothing came."
    told = [_told(part, tokens, refill) for part, tokens in refill.parts[:PARTS_TOLD]]
    rest = sum(tokens for _, tokens in refill.parts[PARTS_TOLD:])
    told += [f"other {rest:,}"] if rest else []
    came = f"Since the last {since}, {ago}, {refill.tokens:,} tokens came: {', '.join(told)}."
    return " ".join(filter(None, (came, _advice(refill))))


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
    UNRECORDED: "unrecorded (system prompt, tool definitions)",
}


def _told(part: str, tokens: int, refill: Refill) -> str:
    name = _NAMES.get(part) or one_line(part, 40)
    if part != Part.TOOL_RESULTS or refill.largest is None:
        return f"{name} {tokens:,}"
    tool, handle, size = refill.largest
    return f"{name} {tokens:,} ({handle} of {one_line(tool, 40)} alone {size:,})"


_ADVICE: Mapping[str, str] = {
    Part.SYSTEM: "System messages are kept by every compaction: shorten them.",
    UNRECORDED: "No compaction makes that smaller: connect fewer MCP servers, offer fewer tools, or shorten the system"
    " prompt and the instruction files that are part of it.",
    Part.USER: "Hand over long material as files that are read in parts, instead of pasting it.",
    Part.ASSISTANT: "Ask for shorter replies, or compact at a lower mark.",
    Part.THINKING: "Lower the thinking budget or effort.",
    Part.TOOL_CALLS: "Have files edited in place instead of written whole: the arguments of calls fill the window.",
    Part.TOOL_RESULTS: "Many outputs add up: prune_tool_outputs archives them, a limit on one output keeps them small.",
    Part.IMAGES: "Send fewer or smaller images and documents.",
    Part.ARCHIVED: "Placeholders add up: compacting replaces them by one summary.",
    Part.SUMMARIES: "Summaries add up: merge them, or have shorter ones written.",
}


def _advice(refill: Refill) -> str:
    """What helps against the part that makes up at least half of what came, or nothing."""
    part, tokens = refill.parts[0]
    if refill.largest and refill.largest[2] >= DOMINANT * refill.tokens:
        tool = one_line(refill.largest[0], 40)
        return f"One output did most of it: limit what {tool} puts out, or have it read in parts."
    return _ADVICE.get(part, "") if tokens >= DOMINANT * refill.tokens else ""
