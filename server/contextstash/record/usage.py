"""Usage: what a provider reports of a request, booked to the reply it belongs to, also if it is reported later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from contextstash.messages.base import Format, reported_usage
from contextstash.session.access import Access
from contextstash.view.session_counters import reported_late
from contextstash_storage.errors import BadInputError
from contextstash_storage.records import Call, Native, Session, Usage


def with_usage(natives: Sequence[Native], fmt: Format, usage: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The further fields of these messages that attach a reported usage to the last reply among them. Raises
    BadInputError if its form is unknown, or if there is no reply."""
    read = reported_usage(usage)
    for place in range(len(natives) - 1, -1, -1):
        if fmt.read(natives[place]).role == "assistant":
            return [{"usage": read} if each == place else {} for each in range(len(natives))]
    raise BadInputError("usage belongs to a reply, but none of these messages has the role assistant.")


async def book_late(access: Access, session: Session, usage: Mapping[str, Any]) -> Session:
    """Book a usage to the newest request, whose reply is recorded already; nothing is done if it has one. Raises
    BadInputError if the form of the usage is unknown."""
    read, sent = reported_usage(usage), session.counters.request
    if sent is None:
        return session
    replies = await access.store.read_messages(session.session_id, first=sent.messages, bodies=False)
    other = next((place for place, each in enumerate(replies) if each.role != "assistant"), len(replies))
    reply = sum(each.tokens for each in replies[:other])
    call = _call(session, read, sent.messages - 1)
    return await access.store.change_counters(
        session.session_id,
        lambda counters: reported_late(
            counters, read, sent.messages, reply, since=counters.view_tokens - sent.counted - reply
        ),
        logged=call,
        booked=(sent.number, read),
    )


async def report_late(access: Access, session: Session, key: str, usage: Usage) -> Session:
    """Add the usage of a reply of a transcript, by its key, that was recorded before its usage was written. Safe to
    repeat; nothing is done if a later message has a report already."""
    session_id = session.session_id
    seq = await access.store.find_key(session_id, key)
    if seq is None or session.counters.reported_seq >= seq:
        return session
    reply, *later = await access.store.read_messages(session_id, first=seq, bodies=False)
    since = sum(found.tokens for found in later if found.agent_visible)
    call = _call(session, usage, seq - 1).model_copy(update={"created_at": reply.created_at})
    return await access.store.change_counters(
        session_id, lambda counters: reported_late(counters, usage, seq, reply.tokens, since=since), logged=call
    )


def _call(session: Session, usage: Usage, seq: int) -> Call:
    """An agent's call, of which this usage is known alone; `seq` is the last message that was sent."""
    return Call(purpose="agent", model=session.model, request_seq=seq, **usage.model_dump())
