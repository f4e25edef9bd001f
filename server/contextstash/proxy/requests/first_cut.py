"""Large outputs that are cut before they are first sent, to a model that binds its reasoning: later they must stay."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from contextstash.formats.request.text import RequestText
from contextstash.proxy.conversations import Conversation
from contextstash.proxy.requests.bound_reasoning import binding_of
from contextstash.proxy.requests.drafts import Draft
from contextstash.service.requests.proxied import ProxiedSessions
from contextstash_storage.records import Usage

Recording = Callable[[Conversation, RequestText, Usage | None], Awaitable[None]]


async def cut_unsent(sessions: ProxiedSessions, draft: Draft, limit: int, record: Recording) -> None:
    """Record the request and cut its outputs of more tokens than `limit` that no request has held yet."""
    conversation, request, former = draft.conversation, draft.request, draft.conversation.request
    unsent = unsent_outputs(draft, limit) if binding_of(draft) else set()
    if not unsent:
        return
    extends = former is not None and len(request.messages) > len(former.messages)
    await record(conversation, request, conversation.usage if extends else None)
    known = conversation.catalog.outputs
    named = {name for place, name, result in draft.results() if (place, result.call_id) in unsent}
    positions = sorted({known[name].output.seq for name in named if name in known})
    if positions:
        await sessions.cut(conversation.session_id, positions, limit)
        conversation.edits = await sessions.edits(conversation.session_id, conversation.catalog)


def unsent_outputs(draft: Draft, tokens: int) -> set[tuple[int, str]]:
    """The outputs of more tokens that no request has held yet, with their messages and call ids: those behind the
    model's last reply that are neither recorded nor in the last request, which the provider may have refused."""
    conversation, request = draft.conversation, draft.request
    first = max(draft.last_reply + 1, conversation.same_as_last(request), conversation.same_messages(request))
    rate = conversation.tokens_per_byte
    return {
        (place, output.call_id)
        for place, _, output in draft.outputs()
        if place >= first and output.size * rate > tokens
    }
