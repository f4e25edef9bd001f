"""Reasoning that only its provider can read: its tokens, and what the provider reports to have dropped of it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from contextstash.messages.base import Format
from contextstash.messages.reasoning_reports import DroppedReasoning
from contextstash.session.estimate import own_tokens
from contextstash.session.session_access import Access
from contextstash.view.session_snapshot import event_without_edits
from contextstash_storage.records import NewMessage

logger = logging.getLogger(__name__)


async def log_dropped_reasoning(access: Access, session_id: str, dropped: DroppedReasoning) -> None:
    """Add an event to the session's log, which its status shows. Raises SessionNotFoundError."""
    session = await access.session(session_id)
    event = event_without_edits(session, "reasoning_dropped", own_tokens(access, session), dropped.sentence)
    await access.store.append_event(session_id, event)
    logger.warning("%s: %s", session_id, dropped.sentence)


def with_reported_reasoning(fmt: Format, messages: Sequence[NewMessage]) -> list[NewMessage]:
    """The messages of a batch; in each reply whose usage names reasoning tokens, its unreadable thinking has as many.
    They are subtracted when the reply leaves the view: counted too low, the estimate would stay too high."""
    result = list(messages)
    for place, message in enumerate(messages):
        tokens = message.usage.reasoning_tokens if message.usage else 0
        if not tokens:
            continue
        places = range(_start_of_reply(messages, place), place + 1)
        found = [(at, index) for at in places for index in _unreadable(fmt, messages[at])]
        for number, (at, index) in enumerate(found):
            share = tokens // len(found) + (number < tokens % len(found))
            blocks = list(result[at].blocks)
            blocks[index] = blocks[index].model_copy(update={"tokens": share})
            result[at] = result[at].model_copy(update={"blocks": tuple(blocks)})
    return result


def _start_of_reply(messages: Sequence[NewMessage], end: int) -> int:
    start = end
    while start and messages[start - 1].role == "assistant" and messages[start - 1].usage is None:
        start -= 1
    return start


def _unreadable(fmt: Format, message: NewMessage) -> list[int]:
    """The indexes of thinking blocks without a text."""
    if not any(block.type == "thinking" for block in message.blocks):
        return []
    texts = fmt.read(message.body).texts
    return [
        index
        for index, (block, text) in enumerate(zip(message.blocks, texts, strict=False))
        if block.type == "thinking" and not text
    ]
