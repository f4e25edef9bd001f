"""Serves the proxy on this machine, in a process of its own or beside a client: opens the stash and the connection."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO

from contextstash.base.plain_logs import configure_logs
from contextstash_storage.errors import ContextstashError

if TYPE_CHECKING:
    from contextstash.proxy.app import ProxyApp
    from contextstash.proxy.plan import ProxyOptions
    from contextstash.stash import Stash

logger = logging.getLogger(__name__)

RECORD_SECONDS = 0.6
"""How long the last requests may take to be recorded, after a signal and the second that replies have then. Most take
milliseconds."""

LAST_SECONDS = 10.0
"""The same of a proxy whose client has ended, under `contextstash run`: nothing waits for it then but the prompt. With
eight busy processes on two cores the first request of a session took 3 s."""

END_SECONDS = 2.0
"""How much longer than these seconds the end may take, with what is written then."""

UVICORN: dict[str, Any] = {
    "server_header": False,
    "date_header": False,
    "ws": "none",
    "proxy_headers": False,
    "lifespan": "on",
    "timeout_keep_alive": 600,
    "timeout_graceful_shutdown": 1,
}
"""uvicorn's settings for an application that passes on others' responses: it adds no headers of its own, and leaves it
to the client when an idle connection ends (longer than clients keep theirs). After a signal a reply has one second
left: it may take minutes, and who ends the proxy waits for it."""


@dataclass(frozen=True)
class ServedProxy:
    """What is served: `upstream` is the model API's address. With a `secret`, only requests whose path begins with it
    are served: those of the one client that was told it. `unrecorded` gets the session of each request that could not
    be recorded."""

    upstream: str
    options: ProxyOptions
    open_stash: Callable[[], Awaitable[Stash]]
    host: str = "127.0.0.1"
    port: int = 0
    secret: str | None = None
    clock: Callable[[], float] = field(default=time.time)
    unrecorded: list[str] = field(default_factory=list)


def serve_proxy(served: ServedProxy) -> None:
    """Serve until a signal. Raises BadInputError if the address of the model API or the port cannot be used."""
    from contextstash.proxy.app import check_upstream
    from contextstash.web import serve

    upstream = check_upstream(served.upstream)
    configure_logs()
    _quiet_libraries()
    serve(
        partial(proxy_app, served),
        served.host,
        served.port,
        lambda address: f"contextstash proxy: {address} -> {upstream}",
        settings=UVICORN,
    )


@contextmanager
def proxy_beside(served: ServedProxy, log: TextIO) -> Iterator[str]:
    """Serve in a thread of this process while a client runs; yields the address for it. Other users of this machine can
    reach the port, but not guess the path. The proxy's lines go to the `log`: the terminal belongs to the client."""
    from contextstash.web import serving

    configure_logs(log)
    logging.captureWarnings(True)
    _quiet_libraries()
    with serving(partial(proxy_app, served), UVICORN, LAST_SECONDS + END_SECONDS) as port:
        yield f"http://127.0.0.1:{port}/{served.secret}"


def _quiet_libraries() -> None:
    """uvicorn and httpx2 would log addresses and tracebacks, which can quote a request."""
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL + 1)


async def proxy_app(served: ServedProxy) -> ProxyApp:
    """The application, with the stash and the connection to the model API open."""
    from contextstash.clients.follow import ingest
    from contextstash.proxy.app import ProxyApp, Upstream, check_upstream
    from contextstash.proxy.engine import Engine

    upstream = Upstream(check_upstream(served.upstream))
    threading.Thread(target=_read_prices, daemon=True).start()
    stash: Stash | None = None
    engine: Engine | None = None
    try:
        stash = await served.open_stash()
    except ContextstashError as error:
        logger.warning("Nothing is recorded or pruned: %s", error)
    else:
        options = replace(served.options, one_user=served.secret is not None)
        record = partial(ingest, stash)
        engine = Engine(stash, options, served.clock, ingest=record, unrecorded=served.unrecorded)

    async def at_end() -> None:
        if stash is not None and engine is not None:
            with suppress(TimeoutError):  # only under `run` it is known that no further request comes
                if served.secret is None:
                    await asyncio.wait_for(engine.idle(), RECORD_SECONDS)
                else:
                    await asyncio.wait_for(engine.end(), LAST_SECONDS)
            await stash.close()
        await upstream.close()

    gc.collect()
    return ProxyApp(upstream, engine, at_end, served.secret)


def _read_prices() -> None:
    """Read the price table before the first request needs it: that takes half a second."""
    from contextstash.window.models import price_of
    from contextstash_storage.records import Usage

    price_of("claude-opus-4-5", Usage(prompt_tokens=1))
