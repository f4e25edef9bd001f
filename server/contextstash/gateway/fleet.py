"""All servers behind the gateway: starts them together, waits for them up to a time limit, finds them by name."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

import anyio
from anyio.abc import TaskGroup
from mcp import MCPError
from mcp.types import INVALID_PARAMS, Tool

from contextstash.gateway.directory import Directory
from contextstash.gateway.names import Origin
from contextstash.gateway.offers import Offer
from contextstash.gateway.upstream import Peer, Upstream

FIRST_LIST_SECONDS = 10.0
"""How long the first list waits for servers that are starting. A guess. Servers that start later
are reported as a change of the lists."""


class Fleet:
    """The servers, in the order of the configuration. The names that the server `own` offers never change."""

    def __init__(self, upstreams: Sequence[Upstream], own: str | None = None) -> None:
        self.upstreams = {upstream.name: upstream for upstream in upstreams}
        self.first_list_seconds = FIRST_LIST_SECONDS
        self._own = own
        self._started = False
        self._waited = False
        self._past_origins: dict[str, Origin] = {}

    def start(self, group: TaskGroup, peer: Peer) -> None:
        """Start all servers for this client, in tasks of this group. Later calls do nothing."""
        if not self._started:
            self._started = True
            for upstream in self.upstreams.values():
                group.start_soon(upstream.run, peer)

    async def directory(self) -> Directory:
        """What all servers offer now. The first call waits until each has started or failed, at most
        `first_list_seconds`."""
        if not self._waited:
            with anyio.move_on_after(self.first_list_seconds):
                await self._each(Upstream.settled)
            self._waited = True
        offers = {name: self._offered(upstream) for name, upstream in self.upstreams.items()}
        found = Directory.of(offers, self._own)
        self._past_origins |= {name: origin for name, (origin, _) in found.tools.items()}
        return found

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
        near = difflib.get_close_matches(name, list(known), n=1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
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
