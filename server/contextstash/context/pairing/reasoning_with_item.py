"""Forbids cuts between a message of thinking alone and the message that it led to."""

from __future__ import annotations

from collections.abc import Sequence

from contextstash_storage.records import Message


def cuts_after_lone_thinking(messages: Sequence[Message]) -> set[int]:
    """The cuts after a message of thinking alone, if the next message is the assistant's or does not exist yet."""
    return {
        place + 1
        for place, message in enumerate(messages)
        if _is_lone_thinking(message) and (place + 1 == len(messages) or messages[place + 1].role == "assistant")
    }


def _is_lone_thinking(message: Message) -> bool:
    return bool(message.blocks) and all(block.type == "thinking" for block in message.blocks)
