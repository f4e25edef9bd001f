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
from typing import TYPE_CHECKING

from contextstash.base.own_interpreter import own_interpreter
from contextstash.base.plain_logs import configure_logs
from contextstash.proxy.headers import check_upstream
from contextstash.proxy.supervisor import LAST_SECONDS
from contextstash_storage.errors import ContextstashError

if TYPE_CHECKING:
    from contextstash.proxy.bill import ModelPricing
    from contextstash.proxy.http.app import ProxyApp
    from contextstash.proxy.http.upstream import Upstream
    from contextstash.proxy.options import ProxyOptions
    from contextstash.stash import Stash

logger = logging.getLogger(__name__)

RECORD_SECONDS = 0.6
"""How long the last requests may take to be recorded, after a signal and the second that replies have then (see
web/loopback). Most take milliseconds. A proxy whose client has ended, under `contextstash run`, has LAST_SECONDS."""

CLOSE_SECONDS = 0.2
"""How long the database may take to close then. SQLite keeps what was committed if it is not closed."""

END_SECONDS = 1.4
"""The process ends so long after these seconds, whatever it still does: whoever ends it waits three seconds, and with
eight busy processes on two cores the end itself took up to 0.7 s. On an idle machine the periods above are over
before."""


READ_AHEAD_BYTES = 4 << 20
"""How much of a request is read before the reader has taken it, in place of uvicorn's 64 KiB: it stops and starts again
at each piece, which takes 1.3 ms of a request of 2 MB (measured idle). No request of the usual size reaches it."""


FORGOTTEN = (
    "[contextstash: this output of {tool} ({tokens} tokens, {subject}) was left out to save room."
    " It is not stored ({handle}): call the tool again to see it.]"
)
"""What stands for an output if nothing is recorded: nothing that it promises can be retrieved."""


@dataclass(frozen=True)
class ServedProxy:
    """What is served: `upstream` is the model API's address; `database` the file in which others look for what is
    recorded, if it is one; `descriptor` is that of a socket that a parent process
    listens on already, so that no connection is refused while this process is started again. With a `secret`, only
    requests whose path begins with it are served. `at_once` ends the process soon after a signal even if the database
    is locked."""

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

    @property
    def record_seconds(self) -> float:
        """How long the last requests may take to be recorded."""
        return RECORD_SECONDS if self.descriptor is None else LAST_SECONDS


def serve_proxy(served: ServedProxy) -> None:
    """Serve until a signal. Raises BadInputError if the address of the model API or the port cannot be used."""
    upstream = check_upstream(served.upstream)
    configure_logs()
    # uvicorn and httpx2 would log addresses and tracebacks, which can quote a request.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL + 1)
    if served.verbose:
        logging.getLogger("contextstash").setLevel(logging.INFO)
    from contextstash.web.loopback import PROXY_SETTINGS, read_ahead, serve

    read_ahead(READ_AHEAD_BYTES)

    listener = None if served.descriptor is None else socket.socket(fileno=served.descriptor)
    serve(
        lambda: _process_of(served),
        served.host,
        served.port,
        lambda address: f"contextstash proxy: {address} -> {upstream}",
        settings=PROXY_SETTINGS,
        listener=listener,
        drain=partial(_bounded_end, served.record_seconds) if served.at_once else None,
    )
    if served.at_once:
        _exit()


async def proxy_app(served: ServedProxy) -> ProxyApp:
    """The application, with the stash and the connection to the model API open."""
    from contextstash.clients.follow import ingest
    from contextstash.proxy.engine import Engine
    from contextstash.proxy.http.app import ProxyApp
    from contextstash.proxy.http.upstream import Upstream

    upstream = Upstream(check_upstream(served.upstream))
    stash = await _stash(served)

    async def record(path: Path) -> object:
        return await ingest(stash, path) if stash is not None else None

    engine = Engine(
        None if stash is None else stash.proxied,
        served.options,
        served.clock,
        ingest=record,
        facts_of=_facts,
        still_stored=_presence_of(served.database if served.options.record else None),
    )

    async def at_end() -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(engine.idle() if served.descriptor is None else engine.end(), served.record_seconds)
        closing = asyncio.ensure_future(_close(upstream, stash))
        await asyncio.wait({closing}, timeout=CLOSE_SECONDS)
        if served.at_once and not closing.done():
            # A thread that waits for a locked database would keep this process for as long.
            _cut_off()

    return ProxyApp(upstream, engine, at_end, served.secret)


def _cut_off() -> None:
    logger.warning("ended while the database was locked or busy: the last requests may not be recorded")
    _exit()


def _exit() -> None:
    """End the process without freeing what it holds, object by object, which takes half a second on a busy machine."""
    logging.shutdown()
    os._exit(0)


async def _bounded_end(record_seconds: float) -> None:
    """From now on this process has so long, also if its event loop or a thread does not end."""
    timer = threading.Timer(record_seconds + END_SECONDS, _cut_off)
    timer.daemon = True
    timer.start()


async def _close(upstream: Upstream, stash: Stash | None) -> None:
    await upstream.close()
    if stash is not None:
        await stash.close()


async def _process_of(served: ServedProxy) -> ProxyApp:
    """The application in a process of its own."""
    app = await proxy_app(served)
    gc.collect()
    own_interpreter()
    return app


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
    return ModelPricing(
        found.window if found.known else None,
        partial(price_of, model),
    )


async def _stash(served: ServedProxy) -> Stash | None:
    """The stash, in memory if nothing is to be recorded; None if the database cannot be opened."""
    if not served.options.record:
        from contextstash.stash import Stash
        from contextstash_storage.sqlite.store import open_in_memory

        return Stash(await open_in_memory(), settings={"placeholder": FORGOTTEN})
    try:
        return await served.open_stash()
    except ContextstashError as error:
        logger.warning("Nothing is recorded or pruned: %s", error)
        return None
