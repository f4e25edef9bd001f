"""The sessions of one project: those whose client ran in its folder or below it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from contextstash.service.recording.output_archive import OUTPUTS_AGENT
from contextstash.service.session_access import Access
from contextstash_storage.errors import BadInputError
from contextstash_storage.records import Session

MAX_SESSIONS = 1_000
"""The newest sessions of all projects that are considered. Older ones are not found; the
start of each one's transcript is read once."""

PAGE = 200
"""Sessions that are read from the store at a time."""


async def sessions_of_project(access: Access, folder: str) -> list[str]:
    """The ids of the sessions of the project in this folder, of the newest `MAX_SESSIONS` of all projects."""
    found: list[str] = []
    before: str | None = None
    for _ in range(MAX_SESSIONS // PAGE):
        page = await access.store.list_sessions(limit=PAGE, before=before, without_agent=OUTPUTS_AGENT)
        found += await _within(access, page, PurePath(folder))
        if len(page) < PAGE:
            break
        before = page[-1].session_id
    return found


async def _within(access: Access, sessions: Sequence[Session], folder: PurePath) -> list[str]:
    projects = await access.projects_of(sessions)
    return [
        session.session_id
        for session, own in zip(sessions, projects, strict=True)
        if own is not None and PurePath(own).is_relative_to(folder)
    ]


async def project_of_session(access: Access, session_id: str | None) -> str:
    """The folder of a session's project. Raises BadInputError if it is not known."""
    session = await access.session(session_id)
    [folder] = await access.projects_of([session])
    if folder is None:
        raise BadInputError(
            f"The project of session {session.session_id} is not known: only a client's transcript names one, and"
            " contextstash run. Use the scope everywhere."
        )
    return folder
