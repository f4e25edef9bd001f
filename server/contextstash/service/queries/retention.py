"""Retention: deletes the sessions that are older, or take more room, than the user wants to keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path, PurePath

from contextstash.context.window.retention_limits import KeepLimits
from contextstash.context.window.settings import ContextSettings
from contextstash.service.queries.sessions import delete_session, recent_sessions, title_of
from contextstash.service.results import RetainedOut, RetainResult
from contextstash.service.session_access import Access
from contextstash_storage.errors import BadInputError, SessionNotFoundError
from contextstash_storage.records import Session

PAGE = 200
"""Sessions that are read from the store at a time."""

TOGETHER = 25
"""Sessions deleted at once: a deletion rewrites the search index, and hiding a session takes the write lock for about
a millisecond."""

GIGABYTE = 10**9

NO_LIMIT = (
    "How much shall be kept? Pass --days or --gigabytes, or set keep_days or keep_gigabytes in your contextstash.toml."
)
NO_SIZE = "The size of a database on a server is not known here: pass --days."


@dataclass(frozen=True, slots=True)
class _Kept:
    """Sessions that the same limits apply to."""

    limits: KeepLimits
    sessions: list[Session] = field(default_factory=list)
    is_project: bool = False


async def retain(
    access: Access,
    now: datetime,
    *,
    days: int | None = None,
    gigabytes: float | None = None,
    project: str | None = None,
    settings: ContextSettings | None = None,
    spare: timedelta = timedelta(0),
    dry_run: bool = True,
) -> RetainResult:
    """Delete the sessions last recorded more than `days` ago, and of the others the oldest until the rest of the
    database is within `gigabytes`; with neither, by the limits of the `settings`, by default those in force. A session
    with a pin stays, and so does one recorded within the time `spare`. Raises BadInputError if no limit is set."""
    settings = settings or access.settings()
    given = KeepLimits(keep_days=days, keep_gigabytes=gigabytes)
    by_settings = given == KeepLimits()
    index_days = settings.index_days if by_settings and project is None else None
    rules = dict(settings.keep_in) if by_settings else {}
    if by_settings:
        given = KeepLimits(keep_days=settings.keep_days, keep_gigabytes=settings.keep_gigabytes)
    if given == KeepLimits() and not rules and index_days is None:
        raise BadInputError(NO_LIMIT)
    listed = await _listed(access)
    groups = await _grouped(access, listed, given, rules, project)
    size = await access.store.size()
    if size is None and any(group.limits.keep_gigabytes for group in groups):
        raise BadInputError(NO_SIZE)
    going = [session for group in groups for session in _beyond(group, listed, now, size or 0)]
    going = [session for session in going if _recorded_at(session) <= now - spare]
    gone = [session for session in going if not session.settings.get("pin")]
    lines = [await _line(access, session) for session in gone]
    note = None if dry_run else await _delete(access, [session.session_id for session in gone])
    return RetainResult(
        unindexed=index_days and await unindex(access, now, days=index_days, dry_run=dry_run),
        sessions=lines,
        kept=len(listed) - len(gone),
        pinned=len(going) - len(gone),
        dry_run=dry_run,
        note=note,
    )


async def _delete(access: Access, session_ids: Sequence[str]) -> str | None:
    """Delete these sessions; returns the remark of the last deletion that has one."""
    waiting, note = list(session_ids), None
    while waiting:
        first, *others = waiting[:TOGETHER]
        try:
            note = (await delete_session(access, first, others=others)).note or note
        except SessionNotFoundError:  # deleted by another process meanwhile
            del waiting[0]
        else:
            del waiting[:TOGETHER]
    return note


async def unindex(access: Access, now: datetime, *, days: int, dry_run: bool = True) -> int:
    """Take the sessions last recorded more than `days` ago out of the search index; returns how many were in it."""
    known = set(await access.store.unindexed_sessions())
    old = [session.session_id for session in _older(await _listed(access), now, days)]
    names = [session_id for session_id in old if session_id not in known]
    return len(names) if dry_run else await access.store.unindex_sessions(names)


async def _grouped(
    access: Access, listed: Sequence[Session], limits: KeepLimits, rules: Mapping[str, KeepLimits], project: str | None
) -> list[_Kept]:
    """The sessions by the limits that apply to them: those of the innermost folder that has any, else `limits`. With
    `project`, only the sessions of that folder."""
    folders = await access.projects_of(listed) if rules or project is not None else [None] * len(listed)
    named = _folders(rules)
    groups = {at: _Kept(rule, is_project=True) for at, rule in named.items()}
    others = _Kept(limits)
    for session, folder in zip(listed, folders, strict=True):
        if project is not None and (folder is None or not PurePath(folder).is_relative_to(project)):
            continue
        within = [at for at in named if folder is not None and PurePath(folder).is_relative_to(at)]
        group = groups[max(within, key=lambda at: len(at.parts))] if within else others
        group.sessions.append(session)
    return [*groups.values(), others]


def _folders(rules: Mapping[str, KeepLimits]) -> dict[Path, KeepLimits]:
    return {Path(name).expanduser(): rule for name, rule in rules.items()}


def _beyond(group: _Kept, listed: Sequence[Session], now: datetime, size: int) -> list[Session]:
    """Those of its sessions that are older, or take more room, than its limits allow."""
    old = _older(group.sessions, now, group.limits.keep_days)
    known = {session.session_id for session in old}
    left = [session for session in group.sessions if session.session_id not in known]
    considered = left if group.is_project else [session for session in listed if session.session_id not in known]
    share = sum(map(_weight, considered)) / max(1, sum(map(_weight, listed)))
    return old + _too_large(considered, left, group.limits.keep_gigabytes, round(size * share))


def _weight(session: Session) -> int:
    """The size of a session is not stored: it is estimated by its tokens."""
    return session.counters.appended + 1


async def _listed(access: Access) -> list[Session]:
    """All sessions, the one with the newest message first."""
    found: list[Session] = []
    while page := await recent_sessions(access, limit=PAGE, cursor=found[-1].session_id if found else None):
        found += page
    return found


def _recorded_at(session: Session) -> datetime:
    return session.last_message_at or session.updated_at


def _older(sessions: Sequence[Session], now: datetime, days: int | None) -> list[Session]:
    if days is None:
        return []
    return [session for session in sessions if _recorded_at(session) < now - timedelta(days=days)]


def _too_large(
    counted: Sequence[Session], deletable: Sequence[Session], gigabytes: float | None, size: int
) -> list[Session]:
    """The oldest of the deletable ones without which the counted ones, which take `size` bytes, are small enough."""
    if gigabytes is None:
        return []
    each = size / max(1, sum(map(_weight, counted)))
    left = float(size)
    found: list[Session] = []
    for session in reversed(deletable):
        if left <= gigabytes * GIGABYTE:
            break
        found.append(session)
        if not session.settings.get("pin"):
            left -= each * _weight(session)
    return found


async def _line(access: Access, session: Session) -> RetainedOut:
    return RetainedOut(
        session_id=session.session_id,
        title=await title_of(access, session),
        messages=session.counters.messages,
        last_recorded=_recorded_at(session).isoformat(),
    )
