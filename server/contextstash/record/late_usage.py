"""Usage that is reported after the reply was recorded: booked to its request all the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from contextstash.messages.usage import reported_usage
from contextstash.session.session_access import Access
from contextstash.view.session_counters import booked_late
from contextstash_storage.errors import BadInputError
from contextstash_storage.records import Call, Request, SentRequest, Session


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
    call = Call(
        purpose="agent",
        model=session.model,
        request_seq=sent.messages - 1,
        request_edits=sent.edits,
        **read.model_dump(),
    )
    return await access.store.book_usage(
        session.session_id,
        sent.number,
        read,
        lambda counters: booked_late(counters, read, sent, reply),
        call,
    )


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


async def _reply_tokens(access: Access, session: Session, sent: SentRequest) -> int:
    """The tokens of the reply: the messages of the assistant that follow the request."""
    total = 0
    for message in await access.store.read_messages(session.session_id, first=sent.messages, bodies=False):
        if message.role != "assistant":
            break
        total += message.tokens
    return total
