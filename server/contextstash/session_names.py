"""Sessions named by the beginning of their ids, as `contextstash sessions` prints them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextstash.stash import Stash

MIN_ID_CHARACTERS = 8
"""Characters of a short id: those of a UUID up to its first hyphen."""


async def short_id(stash: Stash, session_id: str) -> str:
    """The shortest beginning of an id, of 8 characters or more, that names this session."""
    length = MIN_ID_CHARACTERS
    while length < len(session_id) and named_by(await stash.complete_session_id(session_id[:length])) != session_id:
        length += 1
    return session_id[:length]


async def whole_id(stash: Stash, given: str) -> str:
    """The id that this beginning of 8 characters or more names; the text itself if it names none or several."""
    if len(given) < MIN_ID_CHARACTERS:
        return given
    found = await stash.complete_session_id(given)
    return given if given in found else named_by(found) or given


def named_by(found: list[str]) -> str | None:
    """The session that a beginning of ids names: the only one, or the one of which all others are sub-agents."""
    if not found:
        return None
    shortest = min(found, key=len)
    return shortest if all(each == shortest or each.startswith(f"{shortest}.") for each in found) else None
