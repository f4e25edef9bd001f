"""All servers behind the gateway: starts them together, waits for them up to a time limit, finds them by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
from anyio.abc import TaskGroup
from mcp import MCPError
from mcp.types import INVALID_PARAMS, Tool

from contextstash.context.text.near_names import nearest
from contextstash.gateway.directory import Directory
from contextstash.gateway.names import Origin
from contextstash.gateway.servers.offers import Offer
from contextstash.gateway.servers.upstream import Peer, Upstream

FIRST_LIST_SECONDS = 10.0
"""Seconds that the first list waits for servers that are starting. Servers that start later are reported as a change of
the lists."""


MAX_PAST_NAMES = 20_000
"""Names of tools, present and past, that are still valid: twenty full lists."""


class Fleet:
    """The servers, in the order of the configuration. The names that the server `own` offers never change."""

    def __init__(self, upstreams: Sequence[Upstream], own: str | None = None) -> None:
        self.upstreams = {upstream.name: upstream for upstream in upstreams}
        self.first_list_seconds = FIRST_LIST_SECONDS
        self._own = own
        self._started = False
        self._waited = False
        self._past_origins: dict[str, Origin] = {}
        self._made: tuple[list[Offer], Directory] | None = None

    def start(self, group: TaskGroup, peer: Peer) -> None:
        """Start all servers for this client, in tasks of this group. Later calls do nothing."""
        if not self._started:
            self._started = True
            for upstream in self.upstreams.values():
                group.start_soon(upstream.run, peer)

    async def directory(self) -> Directory:
        """The lists of all servers as they are now. The first call waits until each has started or failed, at most
        `first_list_seconds`."""
        if not self._waited:
            with anyio.move_on_after(self.first_list_seconds):
                await self._each(Upstream.settled)
            self._waited = True
        offers = [upstream.offer for upstream in self.upstreams.values()]
        if self._made is None or any(offer is not made for offer, made in zip(offers, self._made[0], strict=True)):
            allowed = {name: self._offered(upstream) for name, upstream in self.upstreams.items()}
            self._made = offers, Directory.of(allowed, self._own)
            self._remember(self._made[1])
        return self._made[1]

    def _remember(self, directory: Directory) -> None:
        """Keep the names of these tools valid; the oldest are forgotten, or a server that changes its list without end
        would fill the memory."""
        for name, (origin, _) in directory.tools.items():
            self._past_origins.pop(name, None)
            self._past_origins[name] = origin
        for name in list(self._past_origins)[: max(0, len(self._past_origins) - MAX_PAST_NAMES)]:
            del self._past_origins[name]

    def tool_origin(self, directory: Directory, name: str) -> Origin:
        """The server and original name of a tool. A name under which a tool was offered earlier is still valid. Raises
        MCPError if the name was never offered; the message names the unavailable servers."""
        if name in directory.tools:
            return directory.tools[name][0]
        if name in self._past_origins:
            return self._past_origins[name]
        raise MCPError(INVALID_PARAMS, self._unknown("tool", name, directory.tools))

    def prompt_origin(self, directory: Directory, name: str) -> Origin:
        """The server and original name of a prompt. Raises MCPError if there is no such prompt."""
        if name in directory.prompts:
            return directory.prompts[name][0]
        raise MCPError(INVALID_PARAMS, self._unknown("prompt", name, directory.prompts))

    def _unknown(self, what: str, name: str, known: Any) -> str:
        near = nearest(name, known)
        hint = f" Did you mean '{near}'?" if near else ""
        missing = [
            f"'{upstream.name}' ({upstream.problem or 'still starting'})"
            for upstream in self.upstreams.values()
            if not upstream.connected
        ]
        unavailable = f" Unavailable servers: {', '.join(missing)}." if missing else ""
        return f"There is no {what} '{name}'.{hint}{unavailable}"

    def _offered(self, upstream: Upstream) -> Offer:
        def allowed(tool: Tool) -> bool:
            return upstream.rules.offers(tool.name)

        return upstream.offer.with_tools(allowed)

    async def _each(self, work: Any) -> None:
        async with anyio.create_task_group() as group:
            for upstream in self.upstreams.values():
                group.start_soon(work, upstream)
