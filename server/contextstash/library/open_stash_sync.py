"""`open_stash_sync`: the same for programs without an event loop. Each call runs on a loop in a thread of its own.

    with open_stash_sync() as stash:
        session = stash.session("job-7", model="gpt-5.4")
        request = session.request(messages, tools=tools)
        messages += session.reply(client.chat.completions.create(messages=request.messages, **request.options))

The methods and arguments are those of `open_stash` and its sessions.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Coroutine, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

from contextstash.library.open_stash import LibraryStash, open_stash
from contextstash.library.session import LibrarySession

P = ParamSpec("P")
T = TypeVar("T")


def open_stash_sync(
    path: str | os.PathLike[str] | None = None,
    *,
    preset: str | None = None,
    settings: Mapping[str, Any] | None = None,
) -> BlockingStash:
    """The stash of this machine's user, to be used with `with`. The arguments are those of `open_stash`."""
    return BlockingStash(open_stash(path, preset=preset, settings=settings))


class BlockingStash:
    """An open stash for a synchronous program; its sessions may be used from several threads."""

    _portal: BlockingPortal

    def __init__(self, stash: LibraryStash) -> None:
        self._inner = stash
        self._end = ExitStack()

    def __enter__(self) -> BlockingStash:
        with ExitStack() as opened:
            self._portal = opened.enter_context(start_blocking_portal(name="contextstash"))
            opened.enter_context(self._portal.wrap_async_context_manager(self._inner))
            self._end = opened.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.close()

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

    @property
    def session_id(self) -> str:
        return self._inner.session_id

    request = blocking(LibrarySession.request)
    reply = blocking(LibrarySession.reply)
    recover = blocking(LibrarySession.recover)
    messages = blocking(LibrarySession.messages)
    keep = blocking(LibrarySession.keep)
    delete = blocking(LibrarySession.delete)
    search = blocking(LibrarySession.search)
    get_archived_output = blocking(LibrarySession.get_archived_output)
    call_tool = blocking(LibrarySession.call_tool)

    def speak(self, format: str) -> None:
        """See `LibrarySession.speak`."""
        self._inner.speak(format)

    def tools(self, format: str | None = None) -> list[dict[str, Any]]:
        """See `LibrarySession.tools`."""
        return self._inner.tools(format)
