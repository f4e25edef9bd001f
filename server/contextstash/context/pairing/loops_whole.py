"""Forbids cuts that take from an open tool loop the thinking that it began with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from contextstash.context.pairing.blocks import answers_calls, is_open_call
from contextstash.context.pairing.replies_whole import reply_numbers
from contextstash_storage.records import Message


def cuts_inside_open_loops(messages: Sequence[Message]) -> set[int]:
    """The cuts in the tool loop at the end of the list before a round without thinking of its own.

    If a request sets a thinking budget, Anthropic requires that the reply which such a loop continues begins with
    thinking, before its first tool call (guide to extended thinking). Models with adaptive thinking have no such rule,
    and their loops may outgrow the window and must stay cuttable. So cuts are forbidden only if the list looks like one
    with a budget: at least two loops began with thinking, and none without. If results are messages of role `tool`, the
    provider is not Anthropic.
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
    """The rounds after each message of a person. Messages before the first of these belong to a loop whose start is
    unknown and are left out."""
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
    """Whether the model has the next turn after this last message."""
    return answers_calls(last) or any(is_open_call(block) for block in last.blocks)
