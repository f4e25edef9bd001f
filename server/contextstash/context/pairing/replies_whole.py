"""Forbids cuts inside one reply of the model, even if it was recorded as several messages."""

from __future__ import annotations

from collections.abc import Sequence

from contextstash.context.pairing.blocks import answers_calls
from contextstash_storage.records import Message


def cuts_inside_replies(messages: Sequence[Message]) -> set[int]:
    """The cuts before an assistant message that continues a reply. This also keeps together parallel calls that were
    recorded one by one."""
    numbers = reply_numbers(messages)
    return {
        place
        for place in range(1, len(messages))
        if messages[place].role == "assistant" and numbers[place] == numbers[place - 1]
    }


def reply_numbers(messages: Sequence[Message]) -> list[int]:
    """A number for each message, the same for all messages of one reply and for the answers to its calls.

    An assistant message continues the reply directly before it unless their reply ids differ. After answers to calls
    it continues the reply only if the ids are equal: hosts run calls while a reply is still streaming.
    """
    numbers: list[int] = []
    number = 0
    group: str | None = None
    for place, message in enumerate(messages):
        if place and not _continues(message, messages[place - 1], group):
            number += 1
        if message.role == "assistant":
            group = message.group
        numbers.append(number)
    return numbers


def _continues(message: Message, previous: Message, group: str | None) -> bool:
    """Whether the message belongs to the reply before it, whose id is `group`."""
    if message.role != "assistant":
        return answers_calls(message)
    if previous.role == "assistant":
        return message.group is None or group is None or message.group == group
    return answers_calls(previous) and group is not None and message.group == group
