"""Retention: deletes the sessions that are older, or take more room, than the user wants to keep."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import PurePath

from contextstash.service.queries.sessions import delete_session, recent_sessions, title_of
from contextstash.service.results import RetainedOut, RetainResult
from contextstash.service.session_access import Access
from contextstash_storage.errors import BadInputError, SessionNotFoundError
from contextstash_storage.records import Session

PAGE = 200
"""Sessions that are read from the store at a time."""

GIGABYTE = 10**9

NO_LIMIT = (
    "How much shall be kept? Pass --days or --gigabytes, or set keep_days or keep_gigabytes in your contextstash.toml."
)
NO_SIZE = "The size of a database on a server is not known here: pass --days."


async def retain(
    access: Access,
    now: datetime,
    *,
    days: int | None = None,
    gigabytes: float | None = None,
    project: str | None = None,
    size: int | None = None,
    dry_run: bool = True,
) -> RetainResult:
    """Delete the sessions last recorded more than `days` ago, and of the others the oldest until the rest of the
    database, which now has `size` bytes, is within `gigabytes`; by default those of the settings. A session with a pin
    stays. Raises BadInputError if neither limit is set."""
    settings = access.settings()
    if days is None and gigabytes is None:
        days, gigabytes = settings.keep_days, settings.keep_gigabytes
    if days is None and gigabytes is None:
        raise BadInputError(NO_LIMIT)
    if gigabytes is not None and size is None:
        raise BadInputError(NO_SIZE)
    listed = await _listed(access)
    considered = await _of_project(access, listed, project)
    old = _older(considered, now, days) + _too_large(listed, considered, gigabytes, size or 0)
    going = list({session.session_id: session for session in old}.values())
    gone = [session for session in going if not session.settings.get("pin")]
    lines = [await _line(access, session) for session in gone]
    notes: list[str | None] = []
    for session in () if dry_run else gone:
        try:
            notes.append((await delete_session(access, session.session_id)).note)
        except SessionNotFoundError:  # deleted by another process meanwhile
            continue
    return RetainResult(
        sessions=lines,
        pinned=len(going) - len(gone),
        dry_run=dry_run,
        note=next((note for note in reversed(notes) if note), None),
    )


async def _listed(access: Access) -> list[Session]:
    """All sessions, the one with the newest message first."""
    found: list[Session] = []
    while page := await recent_sessions(access, limit=PAGE, cursor=found[-1].session_id if found else None):
        found += page
    return found


async def _of_project(access: Access, listed: Sequence[Session], project: str | None) -> list[Session]:
    if project is None:
        return list(listed)
    folders = await access.projects_of(listed)
    return [
        session
        for session, folder in zip(listed, folders, strict=True)
        if folder is not None and PurePath(folder).is_relative_to(project)
    ]


def _recorded_at(session: Session) -> datetime:
    return session.last_message_at or session.updated_at


def _older(sessions: Sequence[Session], now: datetime, days: int | None) -> list[Session]:
    if days is None:
        return []
    return [session for session in sessions if _recorded_at(session) < now - timedelta(days=days)]


def _too_large(
    listed: Sequence[Session], considered: Sequence[Session], gigabytes: float | None, size: int
) -> list[Session]:
    """The oldest ones without which the database is small enough. What a session takes is not stored: it is estimated
    by its share of the tokens of all."""
    if gigabytes is None or size <= gigabytes * GIGABYTE:
        return []
    total = sum(session.counters.appended + 1 for session in listed)
    found: list[Session] = []
    for session in reversed(considered):
        if size <= gigabytes * GIGABYTE:
            break
        found.append(session)
        if not session.settings.get("pin"):
            size -= round(size * (session.counters.appended + 1) / total)
            total -= session.counters.appended + 1
    return found


async def _line(access: Access, session: Session) -> RetainedOut:
    return RetainedOut(
        session_id=session.session_id,
        title=await title_of(access, session),
        messages=session.counters.messages,
        last_recorded=_recorded_at(session).isoformat(),
    )
