"""Large outputs that are cut before they are first sent, to a model that binds its reasoning: later they must stay."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from contextstash.formats.request.text import RequestText, TextMessage
from contextstash.proxy.conversations import Conversation
from contextstash.proxy.requests.bound_reasoning import binding_of
from contextstash.proxy.requests.occurrences import has_results, result_names
from contextstash.service.requests.proxied import ProxiedSessions
from contextstash_storage.records import Usage

Recording = Callable[[Conversation, RequestText, Usage | None], Awaitable[None]]


async def cut_unsent(
    sessions: ProxiedSessions, conversation: Conversation, request: RequestText, record: Recording
) -> None:
    """Record the request and cut its outputs of more than the session's limit that no request has held yet."""
    limit, former = conversation.first_cut, conversation.request
    unsent = unsent_outputs(conversation, request, limit) if limit and binding_of(conversation, request) else []
    if not unsent or limit is None:
        return
    extends = former is not None and len(request.messages) > len(former.messages)
    await record(conversation, request, conversation.usage if extends else None)
    name, known = result_names(conversation, request), conversation.catalog.outputs
    names = [name(place, call_id) for place, call_id in unsent]
    positions = sorted({known[each].output.seq for each in names if each in known})
    if positions:
        await sessions.cut(conversation.session_id, positions, limit)
        conversation.edits = await sessions.edits(conversation.session_id, conversation.catalog)


def unsent_outputs(conversation: Conversation, request: RequestText, tokens: int) -> list[tuple[int, str]]:
    """The outputs of more tokens that no request has held yet, with their messages and names: those behind the model's
    last reply that are neither recorded nor in the last request, which the provider may have refused."""
    replies = request.places(is_models)
    sent = max(conversation.same_as_last(request), conversation.same_messages(request))
    first, rate = max(replies[-1] + 1 if replies else 0, sent), conversation.tokens_per_byte
    return [
        (place, call_id)
        for place in request.places(has_results)
        if place >= first
        for call_id, size, _ in request.messages[place].outputs
        if size * rate > tokens
    ]


def is_models(message: TextMessage) -> bool:
    """Whether the model wrote it."""
    return message.is_models
