"""Usage: what a provider reports of a request, booked to the reply it belongs to, also if it is reported later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from contextstash.messages.base import Format
from contextstash.messages.detection import get_format
from contextstash.messages.usage import reported_usage
from contextstash.session.access import Access
from contextstash.view.session_counters import booked_late, reported_late
from contextstash_storage.errors import BadInputError
from contextstash_storage.records import Call, Native, Request, SentRequest, Session, Usage


def with_usage(natives: Sequence[Native], fmt: Format, usage: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The further fields of these messages that attach a reported usage to the last reply among them. Raises
    BadInputError if its form is unknown, or if there is no reply."""
    read = reported_usage(usage)
    for place in range(len(natives) - 1, -1, -1):
        if fmt.read(natives[place]).role == "assistant":
            return [{"usage": read} if each == place else {} for each in range(len(natives))]
    raise BadInputError("usage belongs to a reply, but none of these messages has the role assistant.")


async def fields_with_usage(
    access: Access, session: Session, natives: Sequence[Native], usage: Mapping[str, Any], request_id: str | None
) -> Sequence[Mapping[str, Any]]:
    """The same, with the request of this name that the reply belongs to."""
    extras = with_usage(natives, get_format(session.format), usage)
    if request_id is None:
        return extras
    request = await find_request(access, session.session_id, request_id)
    return [{**extra, "request": request.sent} if extra else extra for extra in extras]


async def find_request(access: Access, session_id: str, request_id: str) -> Request:
    """The request of this name. Raises BadInputError if there is none."""
    digits = request_id.removeprefix("req_")
    number = int(digits) if digits.isdecimal() and len(digits) < 10 else 0
    request = await access.store.get_request(session_id, number)
    if request is None:
        raise BadInputError(
            f"Session {session_id} has no request '{request_id}'. Pass the request_id that get_context returned, or"
            " leave it out for the newest one."
        )
    return request


async def book_late(
    access: Access, session: Session, usage: Mapping[str, Any], request_id: str | None = None
) -> Session:
    """Book a usage to a request whose reply is recorded already, by default the newest one without usage; nothing is
    done if there is none. Safe to repeat. Raises BadInputError if the usage or the request is unknown."""
    read = reported_usage(usage)
    sent = session.counters.request
    if request_id is not None:
        request = await find_request(access, session.session_id, request_id)
        sent = request.sent if request.usage is None else None
    if sent is None:
        return session
    reply = await _reply_tokens(access, session, sent)
    call = _call(session, read, sent.messages - 1)
    return await access.store.book_late_usage(
        session.session_id, sent.number, read, lambda counters: booked_late(counters, read, sent, reply), call
    )


async def _reply_tokens(access: Access, session: Session, sent: SentRequest) -> int:
    """The tokens of the reply: the messages of the assistant that follow the request."""
    total = 0
    for message in await access.store.read_messages(session.session_id, first=sent.messages, bodies=False):
        if message.role != "assistant":
            break
        total += message.tokens
    return total


async def report_late(access: Access, session: Session, key: str, usage: Usage) -> Session:
    """Add the usage of a reply of a transcript, by its key, that was recorded before its usage was written. Safe to
    repeat."""
    session_id = session.session_id
    seq = await access.store.find_key(session_id, key)
    if seq is None or session.counters.reported_seq >= seq:
        return session
    reply, *later = await access.store.read_messages(session_id, first=seq, bodies=False)
    since = sum(found.tokens for found in later if found.agent_visible)
    anchored = await access.store.change_counters(
        session_id, lambda counters: reported_late(counters, usage, seq, reply.tokens, since)
    )
    call = _call(session, usage, seq - 1)
    await access.store.append_log(session_id, call.model_copy(update={"created_at": reply.created_at}))
    return anchored


def _call(session: Session, usage: Usage, seq: int) -> Call:
    """An agent's call, of which this usage is known alone; `seq` is the last message that was sent."""
    return Call(purpose="agent", model=session.model, request_seq=seq, **usage.model_dump())
