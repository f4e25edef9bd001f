"""A tool loop that is still open keeps the thinking that it began with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from contextstash.context.pairing.blocks import answers_calls, is_open_call
from contextstash.context.pairing.replies_whole import reply_numbers
from contextstash_storage.records import Message


def cuts_inside_open_loops(messages: Sequence[Message]) -> set[int]:
    """The cuts in the tool loop at the end of the list before a round without thinking of its own.

    With a thinking budget Anthropic demands that the reply which such a loop continues begins with thinking, before its
    first tool call. Models that think adaptively demand nothing of the kind, and there a loop may outgrow the window.
    So this holds only if the list looks like one with a budget: another loop of it began with thinking too, and none
    without. Where results are messages of role `tool`, the provider is another.
    """
    if not messages or not _is_open(messages[-1]) or any(message.role == "tool" for message in messages):
        return set()
    loops = _loops(messages)
    thoughtful = [rounds[0].thinks for rounds in loops if rounds and rounds[0].calls]
    if len(thoughtful) < 2 or not all(thoughtful):
        return set()
    return {following.place for following in loops[-1][1:] if not following.thinks}


@dataclass
class _Round:
    """One reply of the model in a tool loop."""

    place: int
    thinks: bool = False
    calls: bool = False


def _loops(messages: Sequence[Message]) -> list[list[_Round]]:
    """The rounds after each thing that a person says; what stands before the first of them began elsewhere."""
    loops: list[list[_Round]] = []
    number = -1
    for place, (message, reply) in enumerate(zip(messages, reply_numbers(messages), strict=True)):
        if message.role == "user" and not answers_calls(message):
            loops.append([])
        elif message.role == "assistant" and loops:
            if reply != number or not loops[-1]:
                loops[-1].append(_Round(place))
            number = reply
            current = loops[-1][-1]
            current.thinks |= any(block.type == "thinking" for block in message.blocks)
            current.calls |= any(is_open_call(block) for block in message.blocks)
    return loops


def _is_open(last: Message) -> bool:
    """Whether a list with that last message goes on with the model."""
    return answers_calls(last) or any(is_open_call(block) for block in last.blocks)
