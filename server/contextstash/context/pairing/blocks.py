"""Which blocks call a tool, and which answer one."""

from __future__ import annotations

from contextstash_storage.records import Block, Message


def is_open_call(block: Block) -> bool:
    """Whether this block is a tool call that needs an answer. A call of a provider's own tool whose result is in the
    same block has no id."""
    return block.type == "tool_call" and block.call_id is not None


def answered_ids(message: Message) -> list[str]:
    """The ids of the calls that a message answers, each once. Every block with a call id that is not a call is part of
    an answer: a result, an image nested in it, a screenshot, a result of a provider's own tool."""
    ids = [block.call_id for block in message.blocks if block.call_id and block.type != "tool_call"]
    return list(dict.fromkeys(ids))


def answers_calls(message: Message) -> bool:
    """Whether the message answers a call of an earlier message. A reply with results of its provider's own tools does
    not."""
    return message.role != "assistant" and bool(answered_ids(message))
