"""Bound reasoning: which thinking an edit of earlier messages invalidates, and what to do with it.

Newer models bind each piece of their reasoning to everything before it (`reasoning_binding`). If any of that has
changed when the piece is sent again, the provider refuses it and all later ones, or drops them. Reasoning before the
change stays valid, and so does what the model writes after it; all of it from the change on may be left out. So what
was sent stays as it was sent, and edits come together: at a compaction, which leaves out all reasoning behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from contextstash.messages.cuts import answers_calls
from contextstash.view.view import Entry
from contextstash_storage.records import Message

Choice = Literal["none", "strip", "drop", "wait"]

DROP_REQUEST: dict[str, Any] = {
    "thinking": {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}},
    "betas": ["thinking-binding-controls-2026-08-01"],
}
"""The fields of a request that make the API drop invalid thinking instead of refusing it, as arguments of the SDKs'
beta Messages method. `betas` becomes the header `anthropic-beta`: the API refuses `block_binding` without it, and
`thinking` without a `type`; `adaptive` is the default of these models."""


@dataclass(frozen=True, slots=True)
class ThinkingEffect:
    """What an edit invalidates: the messages whose thinking would be refused, the tokens of that thinking, the number
    of cache breakpoints that are written again, and whether a tool loop is open, whose thinking must stay. `choice` is
    what happens to the thinking, `reason` says so in a sentence."""

    broken_seqs: tuple[int, ...] = ()
    broken_tokens: int = 0
    breakpoints: int = 0
    choice: Choice = "none"
    reason: str = ""


def thinking_effect(
    messages: Sequence[Message], first_seq: int, *, bound: bool, choice: str, needed: bool
) -> ThinkingEffect:
    """What an edit invalidates, and what to do: what `choice` says, or the best if it is `auto`. `first_seq` is the
    first message that is shown differently or follows one that is.

    The model needs the thinking of an open tool loop to finish the loop. An edit that would invalidate some of it waits
    for the loop's end, unless it is `needed`: a compaction, or a request that would not fit.
    """
    later = [message for message in messages if message.seq >= first_seq]
    breakpoints = sum([block.breakpoint for message in later for block in message.blocks])
    if not bound or choice == "keep":
        return ThinkingEffect(breakpoints=breakpoints)
    broken = [(message.seq, _thinking_tokens(message)) for message in later]
    broken = [(seq, tokens) for seq, tokens in broken if tokens]
    if not broken:
        return ThinkingEffect(breakpoints=breakpoints)
    seqs = tuple(seq for seq, _ in broken)
    open_loop = seqs[-1] >= _open_loop_start(messages)
    chosen = _chosen(choice, open_loop, needed)
    tokens = sum(tokens for _, tokens in broken)
    reason = _REASONS[chosen].format(count=len(seqs), tokens=tokens)
    return ThinkingEffect(seqs, tokens, breakpoints, chosen, reason)


def later_cut(entries: Sequence[Entry], cuts: Sequence[int], wanted: int) -> int | None:
    """The first safe cut at or after `wanted` that no thinking follows, if it keeps at least half of what a cut at
    `wanted` keeps; None if there is none."""
    thinking = [place for place, entry in enumerate(entries) if place >= wanted and _thinks(entry)]
    if not thinking:
        return None
    kept = sum(entry.tokens for entry in entries[wanted:])
    for cut in cuts:
        if cut > thinking[-1] and 2 * sum(entry.tokens for entry in entries[cut:]) >= kept:
            return cut
    return None


def _thinks(entry: Entry) -> bool:
    return entry.message is not None and not entry.stripped and _thinking_tokens(entry.message) > 0


_REASONS: dict[Choice, str] = {
    "none": "",
    "strip": "The thinking of {count} later messages ({tokens:,} tokens) is bound to what this edit changes and is no"
    " longer shown.",
    "drop": "The thinking of {count} later messages ({tokens:,} tokens) is bound to what this edit changes; the"
    " provider drops it.",
    "wait": "The thinking of {count} later messages ({tokens:,} tokens) belongs to a tool loop that is still open; this"
    " edit waits for its end.",
}


def _chosen(choice: str, open_loop: bool, needed: bool) -> Choice:
    if choice == "drop":
        return "drop"
    return "wait" if open_loop and not needed and choice != "strip" else "strip"


def _thinking_tokens(message: Message) -> int:
    return sum(max(1, block.tokens) for block in message.blocks if block.type == "thinking")


def _open_loop_start(messages: Sequence[Message]) -> int:
    """The first position of an open tool loop: the list ends with a tool call or its result, and the user has written
    nothing from that position on. One past the end of the list if no loop is open."""
    past = messages[-1].seq + 1
    if not any(block.type in ("tool_call", "tool_result") for block in messages[-1].blocks):
        return past
    written = [message.seq for message in messages if message.role == "user" and not answers_calls(message)]
    return written[-1] + 1 if written else 0
