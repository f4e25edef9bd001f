"""Forbids cuts after which a part begins with a tool result."""

from __future__ import annotations

from collections.abc import Sequence

from contextstash.context.pairing.blocks import answered_ids
from contextstash_storage.records import Message


def cuts_before_results(messages: Sequence[Message]) -> set[int]:
    """The cuts directly before a message that answers a call of an earlier message, even if that is not in the list."""
    return {place for place, message in enumerate(messages) if _is_answer(message)}


def _is_answer(message: Message) -> bool:
    called = {block.call_id for block in message.blocks if block.type == "tool_call"}
    return any(call_id not in called for call_id in answered_ids(message))
