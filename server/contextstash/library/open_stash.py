"""`open_stash`: the sessions' database, opened within a program.

    async with open_stash() as stash:
        session = stash.session("job-7", window=200_000)
        found = await stash.use_cases.search_history("connection refused", scope="everywhere")

Leaving the block closes the database; what was recorded is on the disk before that. `open_stash_sync` has the same
sessions for programs without an event loop: each call of a session's method runs on a loop in a thread of its own.

    with open_stash_sync() as stash:
        session = stash.session("job-7", model="gpt-5.4")
        request = session.request(messages, tools=tools)
        messages += session.reply(client.chat.completions.create(messages=request.messages, **request.options))
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

from contextstash.clients.client import project_folder
from contextstash.configuration.setting_layers import Layer, configuration
from contextstash.library.session import LibrarySession
from contextstash.stash_opener import StashOpener
from contextstash.window.settings import resolve_settings
from contextstash_storage.databases import location_of
from contextstash_storage.errors import BadInputError

if TYPE_CHECKING:
    from contextstash.stash import Stash


def open_stash(
    path: str | os.PathLike[str] | None = None,
    *,
    preset: str | None = None,
    settings: Mapping[str, Any] | None = None,
) -> LibraryStash:
    """The stash of this machine's user, to be used with `async with`.

    `path` is the database file, or the postgresql:// address of a database; by default the same as the server's:
    `CONTEXTSTASH_DB`, else `sessions.db` in the user's data folder. The settings are those of the user's and the
    project's files and of the environment, then `preset` and `settings`, then each session's own.
    """
    location = None if path is None else location_of(os.fspath(path))
    found = configuration(project=project_folder(), environment=os.environ, preset=preset)
    found = found.over(Layer("open_stash", settings or {}))
    resolve_settings(found.settings_layer())
    return LibraryStash(StashOpener(location, found))


class LibraryStash:
    """An open stash: `session` gives one conversation; `use_cases` is everything else that the tools can do."""

    def __init__(self, opener: StashOpener) -> None:
        self._opener = opener
        self._opened: Stash | None = None

    async def __aenter__(self) -> Self:
        self._opened = await self._opener()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.use_cases.close()
        self._opened = None

    @property
    def use_cases(self) -> Stash:
        """The service behind it, with a method for each tool: `list_sessions`, `get_summary`, `delete_session`, …"""
        if self._opened is None:
            raise BadInputError("This stash is not open: use it within `async with open_stash() as stash:`.")
        return self._opened

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
        own = settings if window is None else {**settings, "window": window}
        facts = {"agent": agent, "title": title, "parent_session_id": parent_session_id}
        return LibrarySession(self.use_cases, session_id, model=model, format=format, settings=own, **facts)


P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def open_stash_sync(
    path: str | os.PathLike[str] | None = None,
    *,
    preset: str | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Iterator[BlockingStash]:
    """The stash of this machine's user, to be used with `with`. The arguments are those of `open_stash`."""
    inner = open_stash(path, preset=preset, settings=settings)
    with start_blocking_portal(name="contextstash") as portal, portal.wrap_async_context_manager(inner) as opened:
        yield BlockingStash(opened, portal)


class BlockingStash:
    """An open stash for a synchronous program; its sessions may be used from several threads."""

    def __init__(self, stash: LibraryStash, portal: BlockingPortal) -> None:
        self._inner = stash
        self._portal = portal

    def session(self, session_id: str, **arguments: Any) -> BlockingSession:
        """One conversation; the arguments are those of `LibraryStash.session`."""
        return BlockingSession(self._inner.session(session_id, **arguments), self._portal)


def blocking(
    method: Callable[Concatenate[LibrarySession, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[BlockingSession, P], T]:
    """A method that runs the asynchronous one of the session inside, and waits for it."""

    @functools.wraps(method)
    def call(self: BlockingSession, /, *arguments: P.args, **named: P.kwargs) -> T:
        result: T = self._portal.call(functools.partial(method, self._inner, *arguments, **named))
        return result

    return call


class BlockingSession:
    """A session for a synchronous program: the methods of `LibrarySession`, each of which waits for its result."""

    def __init__(self, session: LibrarySession, portal: BlockingPortal) -> None:
        self._inner = session
        self._portal = portal
        self.session_id = session.session_id
        self.speak, self.tools = session.speak, session.tools  # which wait for nothing

    request = blocking(LibrarySession.request)
    reply = blocking(LibrarySession.reply)
    recover = blocking(LibrarySession.recover)
    messages = blocking(LibrarySession.messages)
    call_tool = blocking(LibrarySession.call_tool)
