"""Serving the gateway over stdin and stdout."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Literal

import anyio
from mcp.server import NotificationOptions

from contextstash.gateway.answers import Answers
from contextstash.gateway.config import GatewayConfig, ServerEntry, StdioServer
from contextstash.gateway.fleet import Fleet
from contextstash.gateway.output_limits import Shortening, Tally
from contextstash.gateway.process import environment_of
from contextstash.gateway.rules import ServerRules
from contextstash.gateway.server import Gateway
from contextstash.gateway.transports import connected
from contextstash.gateway.upstream import Upstream
from contextstash.gateway.worker import Setup, Workers
from contextstash.mcp.lazy import LazyStash
from contextstash.mcp.serve import ServeOptions, opener
from contextstash.mcp.server import build_server
from contextstash.mcp.stdio_streams import stdio_streams
from contextstash.signals import end_signals

logger = logging.getLogger(__name__)

OWN = "contextstash"
"""The name of our own tools' server; a configured one of that name is called otherwise."""

OwnTools = Literal["retrieval", "agent", "all"]


def build_gateway(
    config: GatewayConfig,
    options: ServeOptions,
    tools: OwnTools = "retrieval",
    *,
    session_id: str | None = None,
    limits: Mapping[str, Any] | None = None,
) -> Gateway:
    """The gateway to the configured servers, with our own tools as those of one server more. Outputs are archived with
    those of `session_id`; `limits` count if an entry of the configuration names none."""
    stash = LazyStash(opener(options))
    own = build_server(stash, tools)
    entries = {entry.name: entry for entry in config.entries}
    name = _free(OWN, entries)
    workers = Workers(Setup(options, session_id, dict(limits or {})))
    gateway = Gateway(Shortening(stash, session_id, limits or {}), workers, name)
    upstreams = [_upstream(entry, gateway, workers) for entry in entries.values()]
    upstreams.append(Upstream(name, lambda _: own, ServerRules(), gateway.tell_of_changes))
    gateway.fleet = Fleet(upstreams, own=name)
    return gateway


def run_gateway(gateway: Gateway) -> None:
    """Serve until stdin is closed or a signal ends it; the servers behind it are ended with it."""
    anyio.run(_serve, gateway)


def _upstream(entry: ServerEntry, gateway: Gateway, workers: Workers) -> Upstream:
    def way(ended: Callable[[], None]) -> Any:
        return connected(entry.server, Answers(entry.name, entry.rules.max_answer_bytes, workers), ended)

    given = environment_of(entry.server) if isinstance(entry.server, StdioServer) else {}
    variables = tuple(sorted({*given, *entry.references}))
    return Upstream(entry.name, way, entry.rules, gateway.tell_of_changes, variables)


def _free(name: str, taken: dict[str, Any]) -> str:
    while name in taken:
        name += "-own"
    return name


async def _serve(gateway: Gateway) -> None:
    stopped = anyio.Event()
    server = gateway.server(on_stopped=stopped.set)
    changes = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
    serving = anyio.CancelScope()
    async with anyio.create_task_group() as group:
        group.start_soon(_exit_on_signal, serving, stopped, gateway.shortening.tally)
        with serving:
            async with stdio_streams() as (read, write):
                await server.run(read, write, server.create_initialization_options(changes))
        _report(gateway.shortening.tally)
        group.cancel_scope.cancel()


async def _exit_on_signal(serving: anyio.CancelScope, stopped: anyio.Event, tally: Tally) -> None:
    """A read of stdin that is under way cannot be cancelled: with the servers ended, the process ends here."""
    async for _ in end_signals():
        serving.cancel()
        await stopped.wait()
        _report(tally)
        sys.stderr.flush()
        os._exit(0)


def _report(tally: Tally) -> None:
    """What the gateway saved, in one line."""
    if tally.shortened:
        logger.warning(
            "%d of %d results were made short (%d unchanged): %s instead of %s characters, about %s tokens less",
            tally.shortened,
            tally.results,
            tally.unchanged,
            f"{tally.after:,}",
            f"{tally.before:,}",
            f"{(tally.before - tally.after) // 4:,}",
        )
