"""Which blocks call a tool, and which answer one."""

from __future__ import annotations

from contextstash_storage.records import Block, Message


def is_open_call(block: Block) -> bool:
    """Whether an answer is due to this block: a tool call with an id. Where a provider's own tool answers in
    the same block, there is no id."""
    return block.type == "tool_call" and block.call_id is not None


def answered_ids(message: Message) -> list[str]:
    """The ids of the calls that a message answers, each once. Every block with a call id that is no call
    belongs to an answer: a result, images nested in it, a screenshot, a provider's own result."""
    ids = [block.call_id for block in message.blocks if block.call_id and block.type != "tool_call"]
    return list(dict.fromkeys(ids))


def answers_calls(message: Message) -> bool:
    """Whether the message answers any call of an earlier message; a reply that holds its provider's own
    results does not count."""
    return message.role != "assistant" and bool(answered_ids(message))
