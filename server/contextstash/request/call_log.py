"""The log of model calls: tokens, cost and growth of each request, and the request itself, rebuilt."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from contextstash.configuration.windows_and_prices import price_of
from contextstash.messages import get_format
from contextstash.messages.base import Format
from contextstash.messages.breakpoints import first_edited
from contextstash.messages.repair import render
from contextstash.request.get_context import native_of
from contextstash.results import CallList, CallUse
from contextstash.session.access import Access
from contextstash.view.view import build_view, edits_in_force
from contextstash_storage.errors import NotFoundError
from contextstash_storage.records import Call, Edit, Message, Native, Usage


async def list_calls(access: Access, session_id: str, *, after: int = 0, limit: int = 100) -> CallList:
    """A session's calls, oldest first, with the growth of each request of the agent."""
    await access.read_session(session_id)
    calls = await access.store.read_calls(session_id, after=after, limit=limit)
    lines: list[CallUse] = []
    before: int | None = None
    for call in calls:
        is_agent = call.purpose == "agent"
        growth = call.prompt_tokens - before if is_agent and before is not None else None
        before = call.prompt_tokens if is_agent else before
        lines.append(CallUse.of(call, cost=cost_of(call), growth_tokens=growth))
    return CallList(session_id=session_id, calls=lines, next_call=calls[-1].call_id if len(calls) == limit else None)


def usage_of(call: Call) -> Usage:
    """The usage that was reported for a call."""
    return Usage(**{name: getattr(call, name) for name in Usage.model_fields})


def cost_of(call: Call) -> float | None:
    """The cost of a model call in US dollars; if it was not recorded, the list price, if that is known."""
    return call.cost if call.cost is not None else price_of(call.model, usage_of(call))


async def read_request(access: Access, session_id: str, call_id: int) -> list[Native]:
    """The messages of an agent's request, rebuilt from the history and the edits of that time; for a summarizer's call
    the messages that it summarized. Raises NotFoundError."""
    session = await access.read_session(session_id)
    found = await access.store.read_calls(session_id, after=call_id - 1, limit=1)
    if not found or found[0].call_id != call_id:
        raise NotFoundError(f"Session {session_id} has no call {call_id}. contextstash status --calls lists them.")
    [call] = found
    if call.purpose != "agent":
        span = await access.store.read_messages(session_id, first=call.request_first_seq, last=call.request_seq)
        return [message.body or {} for message in span]
    edits = (await access.store.read_edits(session_id))[: call.request_edits]
    messages = await access.store.read_messages(session_id, last=call.request_seq)
    return await asyncio.to_thread(_sent, get_format(session.format), messages, edits)


def _sent(fmt: Format, messages: Sequence[Message], edits: Sequence[Edit]) -> list[Native]:
    bodies = {message.seq: message.body or {} for message in messages}
    natives: list[Native] = []
    for entry in build_view(messages, edits_in_force(edits)):
        natives += native_of(fmt, bodies, entry)
    return render(fmt, natives, changed=first_edited(natives, bodies.values()))
