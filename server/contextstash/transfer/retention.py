"""Deletion of sessions: of one, or by retention of those that are older than the user wants to keep."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from contextstash.queries.sessions import all_sessions, title_of
from contextstash.record.output_archive import OUTPUTS_AGENT, outputs_session_id
from contextstash.results import DeleteResult, RetainedOut, RetainResult
from contextstash.session.access import Access
from contextstash.session.ids import OUTPUTS_SESSION, OUTPUTS_SUFFIX
from contextstash_storage.errors import BadInputError, SessionNotFoundError
from contextstash_storage.records import Session

TOGETHER = 25
"""Sessions deleted at once: a deletion rewrites the search index, and hiding a session takes the write lock for about
a millisecond."""

NOT_OVERWRITTEN = (
    "The session is gone, but its text is not overwritten in the database's files yet: another process is reading an"
    " older state of them, or they could not be written. contextstash tries again every few seconds, and when it opens"
    " the database next; close other programs that use the file."
)

NO_LIMIT = "How long shall sessions be kept? Pass --days, or set keep_days in your contextstash.toml."


async def delete_session(access: Access, session_id: str, *, others: Sequence[str] = ()) -> DeleteResult:
    """Delete a session permanently, with the sessions of its sub-agents and the outputs archived for them, and `others`
    if they exist: the search index is rewritten once for all. Raises SessionNotFoundError."""
    session = await access.read_session(session_id)
    sub_agents = [each for name in (session_id, *others) for each in await _sub_agents(access, name)]
    going = [session_id, *others, *sub_agents]
    along = [*going[1:], *map(outputs_session_id, going)]
    overwritten = await access.store.delete_session(session_id, along=along)
    return DeleteResult(
        session_id=session_id,
        deleted=True,
        messages=session.counters.messages,
        sub_agents=len(sub_agents),
        note=None if overwritten else NOT_OVERWRITTEN,
    )


async def _sub_agents(access: Access, session_id: str) -> list[str]:
    """The sessions of the agents that this one started, which the list shows below it; but not its forks."""
    children = [each for each in await all_sessions(access, parent=session_id) if each.agent != OUTPUTS_AGENT]
    return [child.session_id for child in children if child.session_id.startswith(f"{session_id}.")]


async def retain(
    access: Access,
    now: datetime,
    *,
    days: int | None = None,
    dry_run: bool = True,
) -> RetainResult:
    """Delete the sessions last recorded more than `days` ago, by default those of the settings in force. A session with
    a pin stays. Raises BadInputError if no limit is set."""
    days = days if days is not None else access.settings().keep_days
    if days is None:
        raise BadInputError(NO_LIMIT)
    listed = await _listed(access)
    oldest = now - timedelta(days=days)
    going = [session for session in listed if _recorded_at(session) < oldest]
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
        sessions=lines,
        kept=len(listed) - len(gone),
        pinned=len(going) - len(gone),
        dry_run=dry_run,
        note=note,
    )


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
