"""Building the gateway, serving it over stdin and stdout, and checking its servers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import anyio
from mcp.client import Client
from mcp.server import NotificationOptions

from contextstash.gateway.config import GatewayConfig, ServerEntry, StdioServer
from contextstash.gateway.server import FIRST_LIST_SECONDS, Gateway
from contextstash.gateway.upstream import Upstream
from contextstash.mcp.lazy_stash import LazyStash
from contextstash.mcp.serve import ServeOptions, opener
from contextstash.mcp.server import build_server
from contextstash.mcp.stdio import protocol_server, run_until_signal

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
    gateway = Gateway(stash, session_id, limits or {})
    gateway.upstreams = {entry.name: Upstream(entry, gateway.changed) for entry in config.entries}
    name = OWN
    while name in gateway.upstreams:
        name += "-own"
    own = protocol_server(build_server(stash, tools, followed=options.follow is not None))
    gateway.upstreams[name] = Upstream(ServerEntry(name, StdioServer("")), gateway.changed, own)
    return gateway


def run_gateway(gateway: Gateway) -> None:
    """Serve until stdin is closed or a signal arrives; then stop the servers behind the gateway."""
    anyio.run(_serve, gateway)


async def _serve(gateway: Gateway) -> None:
    stopped = anyio.Event()
    changes = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
    await run_until_signal(gateway.server(on_stopped=stopped.set), stopped, changes)


@dataclass(frozen=True, slots=True)
class Check:
    """What one server offers, or why it is unavailable: the offered names of its tools, the numbers of its prompts and
    resources, the original and offered names of what is renamed, and the names of its environment variables."""

    server: str
    tools: list[str]
    prompts: int
    resources: int
    problem: str | None
    renamed: list[tuple[str, str]]
    variables: list[str]


def check(gateway: Gateway) -> list[Check]:
    """Start the servers, list what each offers, and stop them."""
    return anyio.run(_check, gateway)


async def _check(gateway: Gateway) -> list[Check]:
    gateway.first_list_seconds = 2 * FIRST_LIST_SECONDS  # a slow start on a busy machine is not a fault
    async with Client(gateway.server(), cache=None) as client:
        await client.list_tools()
        lists = await gateway.lists()
        kinds = (lists.tools, lists.prompts, lists.resources, lists.templates)
        return [
            Check(
                server=upstream.name,
                tools=[offered for offered, each in lists.tools.items() if each.upstream is upstream],
                prompts=len(upstream.offer.prompts),
                resources=len(upstream.offer.resources) + len(upstream.offer.templates),
                problem=None if upstream.connected else upstream.problem or "it is still starting",
                renamed=[
                    (each.name, offered)
                    for listed in kinds
                    for offered, each in listed.items()
                    if each.upstream is upstream and each.name != offered
                ],
                variables=upstream.variables,
            )
            for upstream in gateway.upstreams.values()
        ]
