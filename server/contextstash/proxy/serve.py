"""Serves the proxy on this machine: opens the stash, the connection to the model API, and the port."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextstash.base.plain_logs import configure_logs
from contextstash.proxy.supervisor import LAST_SECONDS
from contextstash_storage.errors import ContextstashError

if TYPE_CHECKING:
    from contextstash.proxy.app import ProxyApp
    from contextstash.proxy.bill import ModelPricing
    from contextstash.proxy.plan import ProxyOptions
    from contextstash.stash import Stash

logger = logging.getLogger(__name__)

RECORD_SECONDS = 0.6
"""How long the last requests may take to be recorded, after a signal and the second that replies have then. Most take
milliseconds. A proxy whose client has ended, under `contextstash run`, has LAST_SECONDS."""

CLOSE_SECONDS = 0.2
"""How long the database may take to close then. SQLite keeps what was committed if it is not closed."""

END_SECONDS = 1.4
"""The process ends so long after these seconds, whatever it still does: whoever ends it waits three seconds, and with
eight busy processes on two cores the end itself took up to 0.7 s. On an idle machine the periods above are over
before."""

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
    """What is served: `upstream` is the model API's address; `database` the file in which others look for what is
    recorded, if it is one; `descriptor` is that of a socket that a parent process listens on already, so that no
    connection is refused while this process is started again. With a `secret`, only requests whose path begins with it
    are served. `at_once` ends the process soon after a signal even if the database is locked."""

    upstream: str
    options: ProxyOptions
    open_stash: Callable[[], Awaitable[Stash]]
    host: str = "127.0.0.1"
    port: int = 0
    descriptor: int | None = None
    database: Path | None = None
    verbose: bool = False
    secret: str | None = None
    at_once: bool = False
    clock: Callable[[], float] = field(default=time.time)


def serve_proxy(served: ServedProxy) -> None:
    """Serve until a signal. Raises BadInputError if the address of the model API or the port cannot be used."""
    from contextstash.proxy.app import check_upstream
    from contextstash.web.loopback import serve

    upstream = check_upstream(served.upstream)
    configure_logs()
    # uvicorn and httpx2 would log addresses and tracebacks, which can quote a request.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL + 1)
    if served.verbose:
        logging.getLogger("contextstash").setLevel(logging.INFO)

    async def app() -> ProxyApp:
        made = await proxy_app(served)
        gc.collect()
        return made

    serve(
        app,
        served.host,
        served.port,
        lambda address: f"contextstash proxy: {address} -> {upstream}",
        settings=UVICORN,
        listener=None if served.descriptor is None else socket.socket(fileno=served.descriptor),
        at_signal=partial(_end_soon, served) if served.at_once else lambda: None,
    )


def _end_soon(served: ServedProxy) -> None:
    """From now on this process has so long, also if its event loop or a thread does not end."""
    seconds = RECORD_SECONDS if served.descriptor is None else LAST_SECONDS
    timer = threading.Timer(seconds + END_SECONDS, _cut_off)
    timer.daemon = True
    timer.start()


def _cut_off() -> None:
    logger.warning("ended while the database was locked or busy: the last requests may not be recorded")
    _exit()


def _exit() -> None:
    """End the process without waiting for a thread that waits for a locked database."""
    logging.shutdown()
    os._exit(0)


async def proxy_app(served: ServedProxy) -> ProxyApp:
    """The application, with the stash and the connection to the model API open."""
    from contextstash.clients.follow import ingest
    from contextstash.proxy.app import ProxyApp, Upstream, check_upstream
    from contextstash.proxy.engine import Engine

    upstream = Upstream(check_upstream(served.upstream))
    threading.Thread(target=_read_prices, daemon=True).start()
    stash: Stash | None = None
    try:
        stash = await served.open_stash()
    except ContextstashError as error:
        logger.warning("Nothing is recorded or pruned: %s", error)

    async def record(path: Path) -> object:
        return await ingest(stash, path) if stash is not None else None

    engine = Engine(
        None if stash is None else stash.proxied,
        served.options,
        served.clock,
        ingest=record,
        facts_of=_facts,
        still_stored=_presence_of(served.database),
    )

    async def close() -> None:
        await upstream.close()
        if stash is not None:
            await stash.close()

    async def at_end() -> None:
        under_run = served.descriptor is not None
        with suppress(TimeoutError):
            last = engine.end() if under_run else engine.idle()
            await asyncio.wait_for(last, LAST_SECONDS if under_run else RECORD_SECONDS)
        closing = asyncio.ensure_future(close())
        await asyncio.wait({closing}, timeout=CLOSE_SECONDS)
        if served.at_once:
            if not closing.done():
                _cut_off()
            _exit()

    return ProxyApp(upstream, engine, at_end, served.secret)


def _presence_of(database: Path | None) -> Callable[[], bool]:
    """Whether the file is still the one that was opened: a deleted one is written on, but nobody else can read it."""
    if database is None or not database.exists():
        return lambda: True
    opened = database.stat()

    def is_present() -> bool:
        try:
            return os.path.samestat(database.stat(), opened)
        except OSError:
            return False

    return is_present


def _facts(model: str) -> ModelPricing:
    from contextstash.configuration.windows_and_prices import model_facts, price_of
    from contextstash.proxy.bill import ModelPricing

    found = model_facts(model)
    return ModelPricing(found.window if found.known else None, partial(price_of, model))


def _read_prices() -> None:
    """Read the price table before the first request needs it: that takes half a second."""
    from contextstash_storage.records import Usage

    _facts("claude-opus-4-5").price_of(Usage(prompt_tokens=1))
