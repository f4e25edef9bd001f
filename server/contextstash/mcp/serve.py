"""The server's options, and its two transports: stdio and streamable HTTP."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from contextstash.base.plain_logs import configure_logs

if TYPE_CHECKING:
    from contextstash.clients.follow import Follower
    from contextstash.mcp.http import HttpOptions
    from contextstash.stash import Stash
    from contextstash_storage.databases import Location


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """The options of a server.

    `db` is the database; None means the user's default database. `follow` names the host whose transcripts are
    read (`claude-code`), `follow_path` their folder or file, `project` the folder whose sessions are read. `settings`
    is the server's layer of settings, or a function that returns it for an agent. `api_key` is the key for the model
    that writes summaries; `consent` returns for an agent whether the user allows to call that model. `verbose` logs
    each change of a session's state, without message contents. `json_logs` writes each line of the log as JSON.
    `on_open` is called with the stash when it is opened.
    """

    db: Location | None = None
    tools: Literal["agent", "all"] = "agent"
    follow: str | None = None
    follow_path: Path | None = None
    project: Path | None = None
    settings: Mapping[str, Any] | Callable[[str | None], Mapping[str, Any]] = field(default_factory=dict)
    api_key: str | None = field(default=None, repr=False)
    consent: Callable[[str | None], bool] | None = None
    verbose: bool = False
    json_logs: bool = False
    on_open: Callable[[Stash], None] | None = None


def serve_stdio(options: ServeOptions) -> None:
    """Serve one client over stdin and stdout; returns when stdin is closed. SIGTERM and SIGINT end the
    process with exit code 0 and the store closed. Raises BadInputError if the options cannot be used."""
    _prepare(options)
    from contextstash.mcp.stdio import run_stdio

    run_stdio(opener(options), options.tools, followed=options.follow is not None)


def serve_http(options: ServeOptions, http: HttpOptions) -> None:
    """Serve many clients over HTTP; returns after SIGTERM or SIGINT, when the running requests have
    ended, with the store closed. Raises BadInputError if the options cannot be used, or if the host is not this machine
    and no proxy is in front."""
    _prepare(options)
    from contextstash.configuration.locations import token_file
    from contextstash.mcp.http import run_http

    run_http(
        opener(options),
        options.tools,
        http,
        token_file=token_file(options.db),
        followed=options.follow is not None,
        json_logs=options.json_logs,
    )


def opener(options: ServeOptions) -> Callable[[], Awaitable[Stash]]:
    """A function that opens the stash these options describe."""

    async def open_stash() -> Stash:
        from contextstash.clients.client import used_windows
        from contextstash.clients.projects import project_of
        from contextstash.configuration.database import open_database
        from contextstash.stash import Stash

        follower: Follower | None = None

        async def current_session() -> str | None:
            return await follower.catch_up() if follower else None

        store = await open_database(options.db)
        try:
            stash = Stash(
                store,
                settings=options.settings,
                api_key=options.api_key,
                consent=options.consent,
                current_session=current_session,
                host_windows=used_windows(),
                project_of=project_of,
            )
            if options.follow is not None:
                from contextstash.clients.follow import Follower, find_transcripts

                follower = Follower(stash, find_transcripts(options.follow, options.follow_path, options.project))
            if options.on_open is not None:
                options.on_open(stash)
        except BaseException:
            await store.close()
            raise
        return stash

    return open_stash


def _prepare(options: ServeOptions) -> None:
    """Check the settings before anything is served, and set up plain lines on stderr before the SDK does."""
    from contextstash.window.settings import resolve_settings

    resolve_settings(options.settings(None) if callable(options.settings) else options.settings)
    configure_logs(as_json=options.json_logs)
    if options.verbose:
        logging.getLogger("contextstash").setLevel(logging.INFO)
