"""One server behind the gateway: its connection, its lists and its calls; a call starts it again if it has ended."""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.lowlevel
import httpx2
from anyio.abc import TaskGroup, TaskStatus
from mcp import MCPError, StdioServerParameters
from mcp.client import Client
from mcp.client.stdio import get_default_environment, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.server import Server, ServerRequestContext
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp.types import (
    CONNECTION_CLOSED,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    ClientCapabilities,
    CreateMessageRequest,
    CreateMessageResult,
    CreateMessageResultWithTools,
    ElicitRequest,
    ElicitRequestParams,
    ElicitResult,
    ErrorData,
    Implementation,
    InputRequiredResult,
    ListRootsRequest,
    ListRootsResult,
    PaginatedRequestParams,
    Prompt,
    PromptListChangedNotification,
    Resource,
    ResourceListChangedNotification,
    ResourceTemplate,
    Tool,
    ToolListChangedNotification,
)
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

from contextstash import __version__
from contextstash.gateway.config import HttpServer, ServerEntry
from contextstash.mcp.messages import repaired
from contextstash.safety.sanitize import one_line
from contextstash_storage.errors import ContextstashError

logger = logging.getLogger(__name__)

CONNECT_SECONDS = 60.0
"""How long a server may take to start and list what it offers: npx and uvx download a server at its first start."""

NO_RESPONSE = f"it did not respond within {CONNECT_SECONDS:.0f} seconds"

CHANGE_SECONDS = 1.0
"""Pause after lists were read again: some servers report a change whenever their lists are read."""

MAX_PAGES = 100
"""Pages read of one list, so that a list without end does not keep the other servers waiting."""

LIST_CHANGES = (ToolListChangedNotification, PromptListChangedNotification, ResourceListChangedNotification)

Request = ServerRequestContext[Any, Any]


class UpstreamDownError(ContextstashError):
    """A server behind the gateway is unavailable; the message says why."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The client for which servers are connected: its capabilities, and whether its protocol version has no handshake.
    Servers are connected with the same generation of the protocol: in the newer one a server cannot send requests to
    the client, so a server that does would fail only behind the gateway."""

    capabilities: ClientCapabilities | None
    modern: bool


@dataclass(frozen=True, slots=True)
class Offer:
    """Everything that one server lists."""

    tools: tuple[Tool, ...] = ()
    prompts: tuple[Prompt, ...] = ()
    resources: tuple[Resource, ...] = ()
    templates: tuple[ResourceTemplate, ...] = ()


async def read_offer(session: Any) -> Offer:
    """The lists that a connected server declares in its capabilities."""
    has = session.server_capabilities
    return Offer(
        tools=await _pages(session.list_tools, "tools") if has is None or has.tools else (),
        prompts=await _pages(session.list_prompts, "prompts") if has and has.prompts else (),
        resources=await _pages(session.list_resources, "resources") if has and has.resources else (),
        templates=await _pages(session.list_resource_templates, "resource_templates") if has and has.resources else (),
    )


async def _pages(ask: Callable[..., Awaitable[Any]], name: str) -> tuple[Any, ...]:
    """A list; empty if the server declares it and does not have the method: its tools can still be used."""
    found: list[Any] = []
    cursor = None
    for _ in range(MAX_PAGES):
        try:
            page = await ask(params=PaginatedRequestParams(cursor=cursor) if cursor else None)
        except MCPError as error:
            if name == "tools" or error.code != METHOD_NOT_FOUND:
                raise
            break
        found += getattr(page, name)
        if not (cursor := page.next_cursor):
            break
    return tuple(found)


class Questions:
    """Passes a server's own requests (elicitation, sampling, roots) on to the client, if the client supports them. Such
    a request does not say to which call it belongs, so it is sent for the client's newest call to that server."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._calls: list[Request] = []

    @contextmanager
    def during(self, call: Request) -> Iterator[None]:
        """While this context is open, the server's requests are sent on behalf of this call."""
        self._calls.append(call)
        try:
            yield
        finally:
            self._calls.remove(call)

    def callbacks(self, capabilities: ClientCapabilities | None) -> dict[str, Any]:
        """The arguments with which an SDK client declares and handles the same capabilities as our own client."""
        found: dict[str, Any] = {}
        if capabilities and capabilities.elicitation:
            found["elicitation_callback"] = self._elicit
        if capabilities and capabilities.sampling:
            found |= {"sampling_callback": self._sample, "sampling_capabilities": capabilities.sampling}
        if capabilities and capabilities.roots:
            found["list_roots_callback"] = self._list_roots
        return found

    def named(self, result: InputRequiredResult) -> InputRequiredResult:
        """A result that asks the user, with the server's name in each question."""
        asked = {
            key: each.model_copy(update={"params": self._named(each.params)})
            if isinstance(each, ElicitRequest)
            else each
            for key, each in (result.input_requests or {}).items()
        }
        return result.model_copy(update={"input_requests": asked}) if asked else result

    def _named(self, params: ElicitRequestParams) -> ElicitRequestParams:
        """The question as the server's: the client knows only the gateway, and a server could pass for it."""
        return params.model_copy(
            update={"message": f"The server '{one_line(self._server, 60)}' asks: {params.message}"}
        )

    async def _elicit(self, _: Any, params: ElicitRequestParams) -> Any:
        return await self._ask(ElicitRequest(params=self._named(params)), ElicitResult)

    async def _sample(self, _: Any, params: Any) -> Any:
        kind = CreateMessageResultWithTools if params.tools else CreateMessageResult
        return await self._ask(CreateMessageRequest(params=params), kind)

    async def _list_roots(self, _: Any) -> Any:
        return await self._ask(ListRootsRequest(), ListRootsResult)

    async def _ask(self, request: Any, kind: Any) -> Any:
        if not self._calls:
            return ErrorData(code=INVALID_REQUEST, message="No call of the client is in progress.")
        call = self._calls[-1]
        metadata = ServerMessageMetadata(related_request_id=call.request_id)
        try:
            return await call.session.send_request(request, kind, metadata=metadata)
        except MCPError as error:
            return error.error


class Upstream:
    """A server whose faults do not affect the others. When its connection is lost, `offer` is kept, so that offered
    names do not change, and `problem` is the reason."""

    def __init__(
        self, entry: ServerEntry, changed: Callable[[], Awaitable[None]], own: Server[Any] | None = None
    ) -> None:
        """`changed` is called when the lists have changed; `own` is our own server, which runs in this process."""
        self.name, self.rules, self.entry = entry.name, entry.rules, entry
        self.own = own
        self.offer = Offer()
        self.problem: str | None = None
        self.questions = Questions(entry.name)
        self._changed = changed
        self._client: Client | None = None
        self._peer = Peer(None, modern=False)
        self._group: TaskGroup | None = None
        self._connecting = anyio.Lock()
        self._first, self._lost = anyio.Event(), anyio.Event()

    @property
    def connected(self) -> bool:
        """Whether the server is connected now."""
        return self._client is not None

    @property
    def variables(self) -> list[str]:
        """The names of the environment variables that the server gets."""
        server = self.entry.server
        given = () if isinstance(server, HttpServer) else {**get_default_environment(), **server.env}
        return [] if self.own is not None else sorted({*given, *self.entry.references})

    async def run(self, peer: Peer) -> None:
        """Connect for this client. Connections last until this is cancelled."""
        self._peer = peer
        async with anyio.create_task_group() as self._group:
            with suppress(UpstreamDownError):
                await self._connected()
            self._first.set()
            await anyio.sleep_forever()

    async def settled(self) -> None:
        """Wait until the server is connected or its first start has failed."""
        await self._first.wait()

    async def session(self) -> Any:
        """The session, on a new connection if the last one was lost. Raises UpstreamDownError."""
        await self.settled()
        return (await self._connected()).session

    async def ask(self, request: Callable[[Any], Awaitable[Any]]) -> Any:
        """The response to a request that is safe to repeat: if the connection breaks, it is sent once more."""
        try:
            return await request(await self.session())
        except MCPError as error:
            if not self.broke_off(error):
                raise
            return await request(await self.session())

    def broke_off(self, error: MCPError) -> bool:
        """Whether an error of a request says that the connection ended, and is not the server's own: the SDK uses the
        code -32000 for it, and many servers use the same for any error."""
        return error.code == CONNECTION_CLOSED and not self.connected

    async def _connected(self) -> Client:
        async with self._connecting:
            if self._client is None and self._group is not None:
                with suppress(RuntimeError):  # the task has ended before it was connected
                    await self._group.start(self._connection)
            if self._client is None:
                raise UpstreamDownError(
                    f"The server '{self.name}' is unavailable: {self.problem}. The other servers' tools still work."
                )
            return self._client

    async def _connection(self, *, task_status: TaskStatus[None]) -> None:
        """Connect, and stay connected until the connection is lost."""
        self.problem, self._lost = None, anyio.Event()
        lost = self._lost
        try:
            with anyio.move_on_after(CONNECT_SECONDS) as limit:
                async with self._open() as client, anyio.create_task_group() as group:
                    self.offer = await read_offer(client.session)
                    limit.deadline = math.inf
                    group.start_soon(self._listen, client)
                    self._client = client
                    task_status.started()
                    await self._changed()
                    await lost.wait()
                    group.cancel_scope.cancel()
            self.problem = NO_RESPONSE if limit.cancelled_caught else "it exited"
        except Exception as error:  # an error of one server must not stop the others
            self.problem = _reason(error)
        logger.warning("server '%s' is unavailable: %s", self.name, self.problem)
        if self._lost is lost:
            self._drop()

    def _drop(self) -> None:
        """Forget the connection; the next request makes a new one."""
        self._client = None
        self._lost.set()

    def _open(self) -> Client:
        return Client(
            self.own if self.own is not None else self._transport(),
            message_handler=self._on_message,
            client_info=Implementation(name="contextstash-gateway", version=__version__),
            cache=None,
            mode="auto" if self._peer.modern else "legacy",
            **self.questions.callbacks(self._peer.capabilities),
        )

    @asynccontextmanager
    async def _transport(self) -> AsyncIterator[Any]:
        """The streams to the server. The SDK's client does not say when a server ends between two calls."""
        passed, received = anyio.create_memory_object_stream[Any](0)

        async def pass_on(read: Any) -> None:
            with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                async with passed, read:
                    async for message in read:
                        found = repaired(message) if isinstance(message, Exception) else None
                        await passed.send(SessionMessage(found) if found is not None else message)
            self._drop()

        async with _streams(self.entry) as (read, write), anyio.create_task_group() as group:
            group.start_soon(pass_on, read)
            yield received, write
            group.cancel_scope.cancel()

    async def _on_message(self, message: Any) -> None:
        if isinstance(message, LIST_CHANGES) and self._group is not None:
            self._group.start_soon(self._refresh)

    async def _refresh(self) -> None:
        """Read the server's lists again after it reported a change, then notify the client if they differ. No request
        waits for this: if the server does not respond, its earlier offer is kept."""
        await anyio.lowlevel.checkpoint()
        if self._client is None:
            return
        earlier = self.offer
        try:
            with anyio.fail_after(CONNECT_SECONDS):
                self.offer = await read_offer(self._client.session)
        except Exception as error:
            logger.warning("server '%s' did not list what it offers: %s", self.name, _reason(error))
        if self.offer != earlier:
            await self._changed()

    async def _listen(self, client: Client) -> None:
        """Subscribe to changes of the lists: newer protocol versions report them only to subscribers."""
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return
        has = client.session.server_capabilities
        tools, prompts, resources = (
            bool(declared and declared.list_changed)
            for declared in (has and has.tools, has and has.prompts, has and has.resources)
        )
        if not (tools or prompts or resources):
            return
        try:
            async with client.listen(
                tools_list_changed=tools, prompts_list_changed=prompts, resources_list_changed=resources
            ) as changes:
                async for _ in changes:
                    await self._refresh()
                    await anyio.sleep(CHANGE_SECONDS)
        except Exception as error:  # without a subscription its lists may be outdated; its tools still work
            logger.info("server '%s' does not report changes: %s", self.name, _reason(error))


@asynccontextmanager
async def _streams(entry: ServerEntry) -> AsyncIterator[Any]:
    server = entry.server
    if isinstance(server, HttpServer):
        async with (
            httpx2.AsyncClient(headers=dict(server.headers), timeout=httpx2.Timeout(30.0, read=300.0)) as http,
            streamable_http_client(server.url, http_client=http) as streams,
        ):
            yield streams
        return
    parameters = StdioServerParameters(
        command=server.command, args=list(server.args), env=dict(server.env), cwd=server.cwd
    )
    async with stdio_client(parameters) as streams:
        yield streams


def _reason(error: BaseException) -> str:
    """The reason in one line; of a group of errors, that of the first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, FileNotFoundError):
        return f"the program or folder '{error.filename}' does not exist"
    first = str(error).strip().splitlines()[:1]
    return f"{type(error).__name__}: {first[0][:200]}" if first else type(error).__name__
