"""`open_stash`: the sessions' database, opened within a program.

    async with open_stash() as stash:
        session = stash.session("job-7", window=200_000)
        found = await stash.use_cases.search_history("connection refused", scope="everywhere")

Leaving the block closes the database; what was recorded is on the disk before that.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextstash.library.session import LibrarySession
from contextstash_storage.databases import location_of
from contextstash_storage.errors import BadInputError

if TYPE_CHECKING:
    from contextstash.stash import Stash
    from contextstash_storage.databases import Location

URL_MARK = "://"


@asynccontextmanager
async def open_stash(
    path: str | os.PathLike[str] | None = None,
    *,
    preset: str | None = None,
    settings: Mapping[str, Any] | None = None,
) -> AsyncIterator[LibraryStash]:
    """The stash of this machine's user, to be used with `async with`.

    `path` is the database file, or the postgresql:// address of a database; by default the same as the server's:
    `CONTEXTSTASH_DB`, else `sessions.db` in the user's data folder. The settings are those of the user's and the
    project's files and of the environment, then `preset` and `settings`, then each session's own.
    """
    from contextstash.clients.projects import project_folder
    from contextstash.configuration.setting_layers import Layer, configuration
    from contextstash.stash_opener import StashOpener
    from contextstash.window.settings import resolve_settings

    found = configuration(project=project_folder(os.environ), environment=os.environ, preset=preset)
    found = found.over(Layer("open_stash", settings or {}))
    resolve_settings(found.settings_layer())
    async with await StashOpener(database_of(path), found)() as stash:
        yield LibraryStash(stash)


def database_of(path: str | os.PathLike[str] | None) -> Location | None:
    """The database that is named. Raises BadInputError if the name is the URL of something else."""
    if path is None:
        return None
    location = location_of(os.fspath(path))
    if isinstance(location, Path) and URL_MARK in str(path):
        raise BadInputError(
            f"'{str(path).split(URL_MARK)[0]}{URL_MARK}…' is neither a file nor a PostgreSQL database: pass the path of"
            " a database file, a postgresql:// address, or nothing for the server's own."
        )
    return location


class LibraryStash:
    """An open stash: `session` gives one conversation; `use_cases` is everything else that the tools can do, with a
    method for each tool: `list_sessions`, `get_summary`, `delete_session`, …"""

    def __init__(self, use_cases: Stash) -> None:
        self.use_cases = use_cases

    def session(
        self,
        session_id: str,
        *,
        model: str | None = None,
        window: int | None = None,
        format: str | None = None,
        agent: str | None = None,
        title: str | None = None,
        parent_session_id: str | None = None,
        **settings: Any,
    ) -> LibrarySession:
        """One conversation, created with its first request if it does not exist. `settings` are its own, such as
        `preset` or `compact_at`; `window` is one of them, in tokens. `format` is needed only if neither
        the messages nor the tools nor the model show the provider's format: anthropic, openai-chat, openai-responses or
        gemini."""
        return LibrarySession(
            self.use_cases,
            session_id,
            model=model,
            format=format,
            agent=agent,
            title=title,
            parent_session_id=parent_session_id,
            settings={**settings, **({} if window is None else {"window": window})},
        )
