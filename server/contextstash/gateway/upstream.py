"""One server behind the gateway: connected, listed and called; started again when it died and is wanted."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

import anyio
from anyio.abc import TaskGroup
from mcp import MCPError
from mcp.client import Client
from mcp.types import (
    CONNECTION_CLOSED,
    ClientCapabilities,
    Implementation,
    PromptListChangedNotification,
    ResourceListChangedNotification,
    ToolListChangedNotification,
)
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

from contextstash import __version__
from contextstash.gateway.backchannel import Backchannel
from contextstash.gateway.offers import Offer, read_offer
from contextstash.gateway.rules import ServerRules
from contextstash_storage.errors import ContextstashError

logger = logging.getLogger(__name__)

CONNECT_SECONDS = 60.0
"""How long a server may take to start and list what it offers: npx and uvx download one at its first start."""

PAUSE_SECONDS = 2.0
"""How long a server that could not be reached is left alone, whoever asks for it."""

LIST_CHANGES = (ToolListChangedNotification, PromptListChangedNotification, ResourceListChangedNotification)

Way = Callable[[Callable[[], None]], Any]
"""Opens the way to a server; what it is given is to be called when the way ends."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The client on whose behalf servers are connected: what it can do, and whether it speaks a protocol version
    without a handshake. Servers are spoken to in the same generation: in the newer one a server cannot ask back, so one
    that does would otherwise fail behind the gateway alone."""

    capabilities: ClientCapabilities | None
    modern: bool


class UpstreamDownError(ContextstashError):
    """A server behind the gateway that cannot be reached, and why."""


class Upstream:
    """A server whose faults do not affect the others. `run` is its life, in one task; all else may be called from
    any other.

    `offer` stays what it was when the connection is lost, so that names stay, and `problem` says why nobody is there.
    `variables` names those that it gets of the environment.
    """

    def __init__(
        self,
        name: str,
        way: Way,
        rules: ServerRules,
        changed: Callable[[], Awaitable[None]],
        variables: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.variables = variables
        self.rules = rules
        self.offer = Offer()
        self.problem: str | None = None
        self.backchannel = Backchannel(name)
        self._way = way
        self._changed = changed
        self._client: Client | None = None
        self._stale = False
        self._refreshing = False
        self._group: TaskGroup | None = None
        self._first = anyio.Event()
        self._outcome = anyio.Event()
        self._wanted = anyio.Event()
        self._lost = anyio.Event()

    @property
    def connected(self) -> bool:
        """Whether it can be called now."""
        return self._client is not None

    async def run(self, peer: Peer) -> None:
        """Connect, stay connected, and connect again whenever it is wanted after it was lost; ends when cancelled."""
        while True:
            self._wanted, self._lost = anyio.Event(), anyio.Event()
            outcome = self._outcome
            try:
                await self._connection(peer)
                self.problem = self.problem or "it ended by itself"
            except Exception as error:  # whatever is wrong with one server must not end the others
                self.problem = self.problem or _reason(error)
            logger.warning("server '%s' is not there: %s", self.name, self.problem)
            self._drop()
            self._first.set()
            if not outcome.is_set():
                self._outcome = anyio.Event()
                outcome.set()
                await anyio.sleep(PAUSE_SECONDS)
            await self._wanted.wait()

    async def settled(self) -> None:
        """Returns when it is connected, or its first start has failed."""
        await self._first.wait()

    async def client(self) -> Client:
        """The connection to it, made again if need be. Raises UpstreamDownError, which says why there is none."""
        if self._client is None:
            outcome = self._outcome
            self._wanted.set()
            await outcome.wait()
        if self._client is None:
            raise UpstreamDownError(
                f"The server '{self.name}' is not there: {self.problem}. The other servers' tools still work."
            )
        return self._client

    async def ask(self, request: Callable[[Any], Awaitable[Any]]) -> Any:
        """What the server answers to a request that may be repeated: with a connection that breaks, it is, once.
        Raises UpstreamDownError if it is not there, and what the request raises."""
        try:
            return await request((await self.client()).session)
        except MCPError as error:
            if error.code != CONNECTION_CLOSED:
                raise
            self._drop()
            return await request((await self.client()).session)

    async def _refresh(self) -> None:
        """Ask again for what it offers, as it said that this has changed, and tell of it when it is known. Nobody waits
        for that meanwhile: a server that does not answer keeps the offer that it had."""
        while self._stale:
            self._stale = False
            client = self._client
            try:
                if client is not None:
                    with anyio.fail_after(CONNECT_SECONDS):
                        self.offer = await read_offer(client.session)
            except Exception as error:  # its lists stay what they were
                logger.warning("server '%s' did not list what it offers: %s", self.name, _reason(error))
            await self._changed()
        self._refreshing = False

    def _drop(self) -> None:
        """Forget the connection; the next request makes a new one."""
        if self._client is not None:
            self._client, self._group = None, None
            self._outcome = anyio.Event()
        self._lost.set()

    async def _connection(self, peer: Peer) -> None:
        self.problem = None
        lost = self._lost
        opened = anyio.Event()
        async with anyio.create_task_group() as group:
            group.start_soon(self._give_up_if_slow, opened, group.cancel_scope)
            async with self._open(peer) as client:
                self.offer = await read_offer(client.session)
                opened.set()
                group.start_soon(self._listen, client)
                self._client, self._group, self._refreshing = client, group, False
                self._outcome.set()
                self._first.set()
                await self._changed()
                await lost.wait()
            group.cancel_scope.cancel()

    def _open(self, peer: Peer) -> AbstractAsyncContextManager[Client]:
        return Client(
            self._way(self._drop),
            message_handler=self._on_message,
            client_info=Implementation(name="contextstash-gateway", version=__version__),
            cache=None,
            mode="auto" if peer.modern else "legacy",
            **self.backchannel.callbacks(peer.capabilities),
        )

    async def _give_up_if_slow(self, opened: anyio.Event, connection: anyio.CancelScope) -> None:
        with anyio.move_on_after(CONNECT_SECONDS):
            await opened.wait()
            return
        self.problem = f"it did not answer within {CONNECT_SECONDS:.0f} seconds"
        connection.cancel()

    async def _on_message(self, message: Any) -> None:
        if isinstance(message, LIST_CHANGES):
            await self._on_change()

    async def _on_change(self) -> None:
        self._stale = True
        if self._group is not None and not self._refreshing:
            self._refreshing = True
            self._group.start_soon(self._refresh)

    async def _listen(self, client: Client) -> None:
        """Newer protocol versions tell of changes only if they are listened to."""
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return
        has = client.session.server_capabilities
        tools = bool(has and has.tools and has.tools.list_changed)
        prompts = bool(has and has.prompts and has.prompts.list_changed)
        resources = bool(has and has.resources and has.resources.list_changed)
        if not (tools or prompts or resources):
            return
        try:
            async with client.listen(
                tools_list_changed=tools, prompts_list_changed=prompts, resources_list_changed=resources
            ) as changes:
                async for _ in changes:
                    await self._on_change()
        except Exception as error:  # its lists can then change unnoticed; everything else goes on
            logger.info("server '%s' does not tell of changes: %s", self.name, _reason(error))


def _reason(error: BaseException) -> str:
    """What went wrong, in one line, of the first of several errors."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, FileNotFoundError):
        return f"there is no program or folder '{error.filename}'"
    first = str(error).strip().splitlines()[:1]
    return f"{type(error).__name__}: {first[0][:200]}" if first else type(error).__name__
