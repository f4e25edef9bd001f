"""Serving the gateway over stdin and stdout."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Literal

import anyio
from mcp.server import NotificationOptions

from contextstash.gateway.config import GatewayConfig, ServerEntry, StdioServer
from contextstash.gateway.fleet import Fleet
from contextstash.gateway.server import Gateway
from contextstash.gateway.servers.answers import Answers
from contextstash.gateway.servers.process import environment_of
from contextstash.gateway.servers.transports import connected
from contextstash.gateway.servers.upstream import Upstream
from contextstash.gateway.servers.worker import Setup, Workers
from contextstash.gateway.shortened_results import Shortening, Tally
from contextstash.gateway.tool_rules import ServerRules
from contextstash.mcp.lazy_stash import LazyStash
from contextstash.mcp.serve import ServeOptions, opener
from contextstash.mcp.server import build_server
from contextstash.mcp.stdio import run_until_signal
from contextstash.process.own_modules import import_nothing_from_here

logger = logging.getLogger(__name__)

OWN = "contextstash"
"""The name of the server of our own tools. If a configured server has this name, ours gets another one."""

OwnTools = Literal["retrieval", "agent", "all"]


def build_gateway(
    config: GatewayConfig,
    options: ServeOptions,
    tools: OwnTools = "retrieval",
    *,
    session_id: str | None = None,
    limits: Mapping[str, Any] | None = None,
) -> Gateway:
    """The gateway to the configured servers, with our own tools as one more server. Outputs are archived for the
    session `session_id`; `limits` apply to servers whose entry names no limits."""
    stash = LazyStash(opener(options))
    own = build_server(stash, tools, followed=options.follow is not None)
    entries = {entry.name: entry for entry in config.entries}
    name = _unused(OWN, entries)
    workers = Workers(Setup(options, session_id, dict(limits or {})))
    gateway = Gateway(Shortening(stash, session_id, limits or {}, valid=workers.valid), workers, name)
    upstreams = [_upstream(entry, gateway, workers) for entry in entries.values()]
    upstreams.append(Upstream(name, lambda _: own, ServerRules(), gateway.notify_list_changes))
    gateway.fleet = Fleet(upstreams, own=name)
    return gateway


def run_gateway(gateway: Gateway) -> None:
    """Serve until stdin is closed or a signal arrives; then stop the servers behind the gateway."""
    import_nothing_from_here()
    anyio.run(_serve, gateway)


def _upstream(entry: ServerEntry, gateway: Gateway, workers: Workers) -> Upstream:
    def connect(ended: Callable[[], None]) -> Any:
        return connected(entry.server, Answers(entry.name, entry.rules.max_answer_bytes, workers), ended)

    environment = environment_of(entry.server) if isinstance(entry.server, StdioServer) else {}
    variables = tuple(sorted({*environment, *entry.references}))
    return Upstream(entry.name, connect, entry.rules, gateway.notify_list_changes, variables)


def _unused(name: str, taken: dict[str, Any]) -> str:
    while name in taken:
        name += "-own"
    return name


async def _serve(gateway: Gateway) -> None:
    stopped = anyio.Event()
    changes = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
    server = gateway.server(on_stopped=stopped.set)
    await run_until_signal(server, stopped, changes, lambda: _log_savings(gateway.shortening.tally))


def _log_savings(tally: Tally) -> None:
    """Log how much the gateway saved, in one line."""
    if tally.shortened:
        # about four characters a token: the usual estimate for English text and code
        logger.warning(
            "shortened %d of %d results (%d unchanged): %s instead of %s characters, about %s fewer tokens",
            tally.shortened,
            tally.results,
            tally.unchanged,
            f"{tally.after:,}",
            f"{tally.before:,}",
            f"{(tally.before - tally.after) // 4:,}",
        )
