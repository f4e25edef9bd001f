"""Times, sizes and ids as a person reads them in a terminal."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextstash.service.stash import Stash

MIN_ID_CHARACTERS = 8
"""Characters of a short id: those of a UUID up to its first hyphen."""


def when(moment: str | None, now: datetime | None = None) -> str:
    """An ISO 8601 time in this machine's zone: the time of today, the day of this year, or the date."""
    if not moment:
        return "-"
    local = datetime.fromisoformat(moment).astimezone()
    today = (now or datetime.now(local.tzinfo)).astimezone(local.tzinfo)
    if local.date() == today.date():
        return local.strftime("%H:%M")
    return local.strftime("%d %b" if local.year == today.year else "%Y-%m-%d")


async def short_id(stash: Stash, session_id: str) -> str:
    """The shortest beginning of an id, of 8 characters or more, that names this session in a command."""
    length = MIN_ID_CHARACTERS
    while length < len(session_id) and named_by(await stash.complete_session_id(session_id[:length])) != session_id:
        length += 1
    return session_id[:length]


def named_by(found: list[str]) -> str | None:
    """The session that a beginning of ids names: the only one, or the one of which all others are sub-agents."""
    if not found:
        return None
    shortest = min(found, key=len)
    return shortest if all(each == shortest or each.startswith(f"{shortest}.") for each in found) else None
