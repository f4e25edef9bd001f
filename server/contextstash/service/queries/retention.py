"""Retention: deletes the sessions that are older, or take more room, than the user wants to keep."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path, PurePath

from contextstash.context.window.retention_limits import KeepLimits
from contextstash.context.window.settings import ContextSettings
from contextstash.service.queries.sessions import all_sessions, delete_session, title_of
from contextstash.service.recording.output_archive import OUTPUTS_AGENT
from contextstash.service.results import RetainedOut, RetainResult
from contextstash.service.session_access import OUTPUTS_SESSION, OUTPUTS_SUFFIX, Access
from contextstash_storage.errors import BadInputError, SessionNotFoundError
from contextstash_storage.records import Session

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
    sizes = await _sizes(access, groups)
    going = [session for group in groups for session in _beyond(group, listed, now, sizes)]
    going = [session for session in going if _recorded_at(session) <= now - spare]
    gone = [session for session in going if not session.settings.get("pin")]
    lines = [
        RetainedOut.of(
            session,
            title=await title_of(access, session),
            messages=session.counters.messages,
            last_recorded=_recorded_at(session),
        )
        for session in gone
    ]
    note = None if dry_run else await _delete(access, gone)
    return RetainResult(
        unindexed=index_days and await unindex(access, now, days=index_days, dry_run=dry_run),
        sessions=lines,
        kept=len(listed) - len(gone),
        pinned=len(going) - len(gone),
        dry_run=dry_run,
        note=note,
    )


async def _sizes(access: Access, groups: Sequence[_Kept]) -> Mapping[str, int]:
    """The bytes that each session takes, if a limit asks for them: to count them, all rows of messages are read."""
    if not any(group.limits.keep_gigabytes for group in groups):
        return {}
    sizes = await access.store.session_sizes()
    if sizes is None:
        raise BadInputError(NO_SIZE)
    return sizes


async def _delete(access: Access, sessions: Sequence[Session]) -> str | None:
    """Delete these sessions; returns the remark of the last deletion that has one. One that was gone on with or pinned
    since it was listed stays: with many sessions that is minutes ago."""
    note = None
    for start in range(0, len(sessions), TOGETHER):
        batch = sessions[start : start + TOGETHER]
        waiting = [session.session_id for session in batch if await _is_unchanged(access, session)]
        while waiting:
            try:
                note = (await delete_session(access, waiting[0], others=waiting[1:])).note or note
            except SessionNotFoundError:  # deleted by another process meanwhile
                del waiting[0]
            else:
                break
    return note


async def _is_unchanged(access: Access, session: Session) -> bool:
    now = await access.find(session.session_id)
    return now is not None and now.counters.messages == session.counters.messages and now.settings == session.settings


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


def _beyond(group: _Kept, listed: Sequence[Session], now: datetime, sizes: Mapping[str, int]) -> list[Session]:
    """Those of its sessions that are older, or take more room, than its limits allow."""
    old = _older(group.sessions, now, group.limits.keep_days)
    # What the outputs of no session take is not counted: it would be the conversations that are deleted for it.
    known = {session.session_id for session in listed if session.agent == OUTPUTS_AGENT}
    known |= {session.session_id for session in old}
    left = [session for session in group.sessions if session.session_id not in known]
    considered = left if group.is_project else [session for session in listed if session.session_id not in known]
    return old + _too_large(considered, left, group.limits.keep_gigabytes, _with_archives(listed, sizes))


def _with_archives(listed: Sequence[Session], sizes: Mapping[str, int]) -> dict[str, int]:
    """The bytes of the sessions, each with those of the archive that is deleted with it."""
    names = [session.session_id for session in listed]
    return {name: sizes.get(name, 0) + sizes.get(f"{name}{OUTPUTS_SUFFIX}", 0) for name in names}


async def _listed(access: Access) -> list[Session]:
    """All sessions, the one with the newest message first, and the archives that are deleted with none of them: of
    outputs that belong to no session, or to one that was never recorded."""
    found = await all_sessions(access, by_message=True)
    names = {session.session_id for session in found}
    return [session for session in found if not _goes_with_another(session, names)]


def _goes_with_another(session: Session, names: Collection[str]) -> bool:
    if session.agent != OUTPUTS_AGENT or session.session_id == OUTPUTS_SESSION:
        return False
    return session.session_id.removesuffix(OUTPUTS_SUFFIX) in names


def _recorded_at(session: Session) -> datetime:
    """When something was last recorded: a transcript's own times can be long ago when it is imported."""
    return max(session.last_message_at or session.updated_at, session.created_at)


def _older(sessions: Sequence[Session], now: datetime, days: int | None) -> list[Session]:
    if days is None:
        return []
    return [session for session in sessions if _recorded_at(session) < now - timedelta(days=days)]


def _too_large(
    counted: Sequence[Session], deletable: Sequence[Session], gigabytes: float | None, sizes: Mapping[str, int]
) -> list[Session]:
    """The oldest of the deletable ones without which the counted ones are small enough."""
    if gigabytes is None:
        return []
    left = sum(sizes.get(session.session_id, 0) for session in counted)
    found: list[Session] = []
    for session in reversed(deletable):
        if left <= gigabytes * GIGABYTE:
            break
        found.append(session)
        if not session.settings.get("pin"):
            left -= sizes.get(session.session_id, 0)
    return found
