"""The format of a session whose first messages are plain text: several formats write that in the same way."""

from __future__ import annotations

from collections.abc import Sequence

from contextstash.formats import FORMATS, detect_format, get_format
from contextstash.service.session_access import Access
from contextstash_storage.errors import BadMessageError
from contextstash_storage.records import Native, Session

MAX_PLAIN_MESSAGES = 50
"""The longest beginning of plain text after which a session's format may still change. A guess: an agent's first tool
call comes sooner, and so few messages are read again in a moment."""


async def fitting_format(access: Access, session: Session, natives: Sequence[Native], wanted: str | None) -> str:
    """The format of these messages and of all stored ones: the session's own, unless the stored ones are plain text
    that fits `wanted`, or else the format that the new ones show."""
    if session.counters.messages > MAX_PLAIN_MESSAGES or not natives:
        return session.format
    shown = get_format(wanted).name if wanted else _shown_format(session, natives)
    if shown == session.format:
        return shown
    stored = await access.store.read_messages(session.session_id)
    fits = all(FORMATS[shown].matches(message.body or {}) > 0 for message in stored)
    return shown if fits else session.format


def _shown_format(session: Session, natives: Sequence[Native]) -> str:
    own = FORMATS[session.format]
    if all(own.matches(native) > 0 for native in natives):
        return own.name
    try:
        return detect_format(natives)
    except BadMessageError:
        return own.name
