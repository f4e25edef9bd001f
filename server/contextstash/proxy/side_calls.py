"""Requests that belong to no conversation, such as one for a title: billed to the main conversation of their client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from contextstash.base.bounded_cache import BoundedCache
from contextstash.clients.request_identity import is_compaction
from contextstash.messages.breakpoints import content_of
from contextstash.messages.request.text import RequestText, TextMessage, message_of
from contextstash.proxy.accounts import booked_side_call
from contextstash.proxy.bills import Bill
from contextstash.proxy.conversations import AskedRequest, Conversation
from contextstash.proxy.model_pricing import KnownModels
from contextstash.proxy.senders import Sender
from contextstash_storage.records import Usage

MAX_CLIENTS = 100
"""Clients whose side calls wait until their first request ends. Beyond them the oldest are not billed."""


class SideCalls:
    """The bills of side calls that wait for their client's conversation."""

    def __init__(self, models: KnownModels, clock: Callable[[], float]) -> None:
        self._models = models
        self._clock = clock
        self._waiting: BoundedCache[tuple[str, Sender], list[tuple[Bill, object]]] = BoundedCache(MAX_CLIENTS)

    def add(self, asked: AskedRequest, usage: Usage) -> None:
        """Keep the bill of a request."""
        if asked.client_id is not None:
            bill = Bill(usage, ())
            payer = (asked.client_id, asked.sender)
            self._waiting.set(payer, [*(self._waiting.get(payer) or []), (bill, asked.request.value("model"))])

    async def bill_to(self, conversation: Conversation) -> None:
        """Add the bills that wait for this conversation to its state: those of its sender, since anyone can name a
        client's id."""
        if conversation.sender is None:
            return
        for bill, model in self._waiting.pop((conversation.session_id, conversation.sender), ()):
            facts = await asyncio.shield(self._models.of(model))
            conversation.state = bill.added_to(booked_side_call(conversation.state, bill, self._clock()), facts)


def before_summary(conversation: Conversation, request: RequestText) -> RequestText | None:
    """What the client's request for a summary holds but the prompt for it, if that is new: the results that have
    filled the window are in no other request. None if there is nothing new, or if it does not go on from what is
    recorded."""
    known = conversation.same_messages(request)
    if request.compacts:  # the API's own compaction has no prompt
        return request if known < len(request.messages) else None
    place = request.messages.index(request.latest)
    rest = _without_prompt(request.latest)
    messages = (*request.messages[:place], *([rest] if rest is not None else []))
    if not known or known < len(conversation.recorded) or len(messages) <= known:
        return None
    return replace(request, messages=messages, spans=request.spans[: len(messages)], asked={})


def _without_prompt(message: TextMessage) -> TextMessage | None:
    """The results in a message into which the client has merged its prompt for a summary; None if it holds none."""
    if not message.results:
        return None
    content = [block for block in content_of(message.native) if not is_compaction({"content": [block]})]
    return message_of({**message.native, "content": content}, message.format)
