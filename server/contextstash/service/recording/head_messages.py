"""System messages at the head of a whole conversation: if they change, only the declared system prompt changes."""

from __future__ import annotations

from collections.abc import Sequence

from contextstash.context.view.branches import path_to
from contextstash.formats import get_format
from contextstash.service.requests.declared_parts import MAX_HEAD, declare, declared_system
from contextstash.service.session_access import Access
from contextstash_storage.errors import BadMessageError
from contextstash_storage.records import Native, Session


def leading_system(session: Session, natives: Sequence[Native]) -> int:
    """How many system messages a list begins with."""
    fmt = get_format(session.format)
    for place, native in enumerate(natives[:MAX_HEAD]):
        try:
            if fmt.read(native).role != "system":
                return place
        except BadMessageError:  # the recording reports it
            return place
    return min(len(natives), MAX_HEAD)


async def stored_head(access: Access, session: Session) -> list[Native] | None:
    """The system messages that the conversation begins with, as they were recorded; None if it has no messages yet."""
    if not session.counters.messages:
        return None
    path = path_to(await access.store.read_edits(session.session_id), session.counters.messages - 1)
    positions = sorted(path)[:MAX_HEAD]
    head: list[Native] = []
    # Most conversations begin with one system message or none: the next messages can be large.
    for part in (positions[:1], positions[1:2], positions[2:]):
        for message in await access.store.read_messages_at(session.session_id, part) if part else ():
            if message.role != "system":
                return head
            head.append(message.body or {})
    return head


async def declare_head(access: Access, session: Session, head: Sequence[Native], stored: Sequence[Native]) -> Session:
    """Declare the system messages that a conversation begins with, unless they are the recorded ones and these are
    shown. A system prompt that was declared in a field of its own stays."""
    if session.counters.declared.system is None and list(head) == list(stored):
        return session
    declared = await declared_system(access, session)
    if declared is not None and declared.part == "system" and list(head) == list(stored):
        return session
    return await declare(access, session, head=head)
