"""The log of model calls: tokens, cost and growth of each request, and the request itself, rebuilt."""

from __future__ import annotations

import asyncio
import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate

from contextstash.configuration.windows_and_prices import price_of
from contextstash.messages import get_format
from contextstash.messages.base import Format
from contextstash.messages.breakpoints import first_edited
from contextstash.messages.repair import render
from contextstash.request.get_context import native_of
from contextstash.results import CallLine, CallList
from contextstash.session.access import Access
from contextstash.session.open_session import READ_AT_ONCE
from contextstash.view.view import Entry, build_view, edits_in_force
from contextstash_storage.errors import NotFoundError
from contextstash_storage.records import Call, Edit, Message, Native, Session, Usage


async def list_calls(access: Access, session_id: str, *, after: int = 0, limit: int = 100) -> CallList:
    """A session's calls, oldest first, with the size and growth of each request."""
    session = await access.read_session(session_id)
    calls = await access.store.read_calls(session_id, after=after, limit=limit)
    edits = await access.store.read_edits(session_id)
    last = max((call.request_seq for call in calls), default=-1)
    messages, sizes = await _messages_with_sizes(access, session, last)
    lines = await asyncio.to_thread(_lines, calls, edits, messages, sizes)
    return CallList(session_id=session_id, calls=lines, next_call=calls[-1].call_id if len(calls) == limit else None)


async def _messages_with_sizes(access: Access, session: Session, last: int) -> tuple[list[Message], dict[int, int]]:
    """Messages `0..last` without bodies, and the bytes of each body as JSON."""
    messages: list[Message] = []
    sizes: dict[int, int] = {}
    for first in range(0, last + 1, READ_AT_ONCE):
        end = min(last, first + READ_AT_ONCE - 1)
        for message in await access.store.read_messages(session.session_id, first=first, last=end):
            sizes[message.seq] = _size(json.dumps(message.body, ensure_ascii=False, separators=(",", ":")))
            messages.append(message.model_copy(update={"body": None}))
    return messages, sizes


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _lines(
    calls: Sequence[Call], edits: Sequence[Edit], messages: Sequence[Message], sizes: Mapping[int, int]
) -> list[CallLine]:
    lines: list[CallLine] = []
    views: dict[int, tuple[list[int], list[int]]] = {}
    before: int | None = None
    for call in calls:
        if call.purpose == "agent":
            if call.request_edits not in views:
                views[call.request_edits] = _view_sizes(messages, edits[: call.request_edits], sizes)
            size = _up_to(views[call.request_edits], call.request_seq)
        else:
            size = sum(sizes.get(seq, 0) for seq in range(call.request_first_seq, call.request_seq + 1))
        growth = call.prompt_tokens - before if before is not None and call.purpose == "agent" else None
        before = call.prompt_tokens if call.purpose == "agent" else before
        lines.append(CallLine.of(call, cost=cost_of(call), request_bytes=size, growth_tokens=growth))
    return lines


def _view_sizes(
    messages: Sequence[Message], edits: Sequence[Edit], sizes: Mapping[int, int]
) -> tuple[list[int], list[int]]:
    """Positions of a view's entries, and the bytes of the view up to each."""
    entries = build_view(messages, edits_in_force(edits))
    return [entry.first_seq for entry in entries], list(accumulate(_entry_size(entry, sizes) for entry in entries))


def _entry_size(entry: Entry, sizes: Mapping[int, int]) -> int:
    if entry.message is None:
        return _size(entry.edit.text)
    gone = sum(entry.message.blocks[index].size for index in entry.replaced)
    shown = sum(_size(edit.text) for edit in entry.replaced.values())
    return max(0, sizes[entry.message.seq] - gone + shown)


def _up_to(view: tuple[list[int], list[int]], seq: int) -> int:
    positions, totals = view
    place = bisect_right(positions, seq)
    return totals[place - 1] if place else 0


def cost_of(call: Call) -> float | None:
    """The cost of a model call in US dollars; if it was not recorded, the list price, if that is known."""
    if call.cost is not None:
        return call.cost
    return price_of(call.model, Usage(**{name: getattr(call, name) for name in Usage.model_fields}))


async def read_request(access: Access, session_id: str, call_id: int) -> list[Native]:
    """The messages of an agent's request, rebuilt from the history and the edits of that time; for a summarizer's call
    the messages that it summarized. Raises NotFoundError."""
    session = await access.read_session(session_id)
    found = await access.store.read_calls(session_id, after=call_id - 1, limit=1)
    if not found or found[0].call_id != call_id:
        raise NotFoundError(f"Session {session_id} has no call {call_id}. contextstash status --calls lists them.")
    [call] = found
    edits = (await access.store.read_edits(session_id))[: call.request_edits]
    first = call.request_first_seq if call.purpose != "agent" else 0
    messages = await access.store.read_messages(session_id, first=first, last=call.request_seq)
    fmt = get_format(session.format)
    if call.purpose != "agent":
        return [message.body or {} for message in messages]
    return await asyncio.to_thread(_sent, fmt, messages, edits)


def _sent(fmt: Format, messages: Sequence[Message], edits: Sequence[Edit]) -> list[Native]:
    bodies = {message.seq: message.body or {} for message in messages}
    natives: list[Native] = []
    for entry in build_view(messages, edits_in_force(edits)):
        natives += native_of(fmt, bodies, entry)
    return render(fmt, natives, changed=first_edited(natives, bodies.values()))
