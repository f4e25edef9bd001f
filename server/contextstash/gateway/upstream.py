"""One server behind the gateway: its connection, its tools and its calls; a call starts it again if it has ended."""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import httpx2
from anyio.abc import TaskGroup, TaskStatus
from mcp import MCPError, StdioServerParameters, types
from mcp.client import Client
from mcp.client.stdio import get_default_environment, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.server import Server, ServerRequestContext
from mcp.shared.message import ServerMessageMetadata
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from contextstash.gateway.servers import ServerEntry
from contextstash.safety.sanitize import one_line

logger = logging.getLogger(__name__)

CONNECT_SECONDS = 60.0
"""How long a server may take to start and list its tools: npx and uvx download a server at its first start."""

MAX_PAGES = 100
"""Pages read of the list, so that one without end does not keep the other servers waiting."""

Request = ServerRequestContext[Any, Any]


class UpstreamError(MCPError):
    """A server behind the gateway is unavailable, or its answer cannot be used; the message says why."""

    def __init__(self, message: str) -> None:
        super().__init__(types.CONNECTION_CLOSED, message)


class Upstream:
    """A server whose faults do not affect the others. When its connection is lost, its `tools` are kept, so that
    offered names do not change. `problem` is why it is unavailable; None while it is connected. `own` is our own
    server, which runs in this process; `connected` is called after the server has been connected."""

    def __init__(
        self, entry: ServerEntry, connected: Callable[[], Awaitable[None]], own: Server[Any] | None = None
    ) -> None:
        self.name, self.entry, self.own = entry.name, entry, own
        self.tools: list[types.Tool] = []
        self.problem: str | None = "it is still starting"
        self.settled = anyio.Event()
        self._told = connected
        self._client: Client | None = None
        self._lost = anyio.Event()
        self._connecting = anyio.Lock()
        self._calls: list[Request] = []
        self._first: Request
        self._group: TaskGroup

    @property
    def variables(self) -> list[str]:
        """The names of the environment variables that the server gets."""
        given = {**get_default_environment(), **self.entry.env} if self.entry.command else {}
        return sorted({*given, *self.entry.references})

    async def run(self, first: Request) -> None:
        """Connect, for the client that sent this request. Connections last until this is cancelled."""
        self._first = first
        async with anyio.create_task_group() as self._group:
            with suppress(UpstreamError):
                await self._connected()
            self.settled.set()
            await anyio.sleep_forever()

    async def send(self, request: types.CallToolRequest, ctx: Request) -> Any:
        """The result of a client's call, on a new connection if the last one was lost; progress and the server's
        questions are passed on. Raises UpstreamError if the server is unavailable, or the MCPError of the server."""
        await self.settled.wait()
        client = await self._connected()
        wanted: TypeAdapter[Any] = TypeAdapter(types.CallToolResult | types.InputRequiredResult)
        self._calls.append(ctx)
        try:
            found = await client.session.send_request(request, wanted, progress_callback=ctx.session.report_progress)
        except ValidationError as error:
            raise UpstreamError(f"The answer of the server '{self.name}' does not follow the protocol.") from error
        except MCPError as error:
            # The SDK uses this code for a lost connection, and many servers for errors of their own.
            if error.code != types.CONNECTION_CLOSED or self._client is client:
                raise
            raise UpstreamError(
                f"The server '{self.name}' ended while '{request.params.name}' ran: it is unknown whether the call took"
                " effect. The next call starts the server again."
            ) from error
        finally:
            self._calls.remove(ctx)
        for each in (getattr(found, "input_requests", None) or {}).values():
            if isinstance(each, types.ElicitRequest):
                self._sign(each.params)
        return found

    async def _connected(self) -> Client:
        async with self._connecting:
            if self._client is None:
                with suppress(RuntimeError):  # the task has ended before it was connected
                    await self._group.start(self._connection)
            if self._client is None:
                raise UpstreamError(
                    f"The server '{self.name}' is unavailable: {self.problem}. The other servers' tools still work."
                )
            return self._client

    async def _connection(self, *, task_status: TaskStatus[None]) -> None:
        """Connect, and stay connected until the connection is lost."""
        self._lost = lost = anyio.Event()
        # In the newer protocol a server cannot send requests to the client: so each is connected as our client is.
        modern = self._first.protocol_version in MODERN_PROTOCOL_VERSIONS
        mode = "auto" if modern else "legacy"
        try:
            with anyio.move_on_after(CONNECT_SECONDS) as limit:
                async with Client(self.own or self._streams(), cache=None, mode=mode, **self._callbacks()) as client:
                    self.tools = await self._listed(client)
                    limit.deadline = math.inf
                    self._client, self.problem = client, None
                    task_status.started()
                    await self._told()
                    await lost.wait()
            self.problem = f"it did not respond for {CONNECT_SECONDS:.0f} s" if limit.cancelled_caught else "it exited"
        except Exception as error:  # an error of one server must not stop the others
            self.problem = _reason(error)
        logger.warning("server '%s' is unavailable: %s", self.name, self.problem)
        if self._lost is lost:
            self._client = None

    async def _listed(self, client: Client) -> list[types.Tool]:
        """The tools that are offered, without their schemas of results: these would promise structured content, which a
        cut result has not. Empty if the server has none."""
        found: list[types.Tool] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            try:
                page = await client.list_tools(cursor=cursor)
            except MCPError as error:
                if error.code != types.METHOD_NOT_FOUND:
                    raise
                break
            found += page.tools
            if not (cursor := page.next_cursor):
                break
        if self.own:
            return found
        offered = self.entry.rules.tools.offer
        return [each.model_copy(update={"output_schema": None}) for each in found if offered(each.name)]

    @asynccontextmanager
    async def _streams(self) -> AsyncIterator[Any]:
        """The streams to the server. The SDK's client does not say when a server ends between two calls."""
        passed, received = anyio.create_memory_object_stream[Any](0)
        lost = self._lost

        async def pass_on(read: Any) -> None:
            with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                async with passed, read:
                    async for message in read:
                        await passed.send(message)
            self._client = None
            lost.set()

        async with _transport(self.entry) as (read, write), anyio.create_task_group() as group:
            group.start_soon(pass_on, read)
            yield received, write
            group.cancel_scope.cancel()

    def _callbacks(self) -> dict[str, Any]:
        """What answers a server's question to the user: the client, if it can. The question does not say to which call
        it belongs, so it is sent for the client's newest one."""

        async def elicit(_: Any, params: Any) -> Any:
            if not self._calls:
                return types.ErrorData(code=types.INVALID_REQUEST, message="No call of the client is in progress.")
            self._sign(params)
            call, request = self._calls[-1], types.ElicitRequest(params=params)
            metadata = ServerMessageMetadata(related_request_id=call.request_id)
            try:
                return await call.session.send_request(request, types.ElicitResult, metadata=metadata)
            except MCPError as error:
                return error.error

        can = self._first.session.client_capabilities or types.ClientCapabilities()
        return {"elicitation_callback": elicit} if can.elicitation else {}

    def _sign(self, params: Any) -> None:
        """Say whose question it is: the client knows only the gateway, and a server could pass for it."""
        params.message = f"The server '{one_line(self.name, 60)}' asks: {params.message}"


@asynccontextmanager
async def _transport(entry: ServerEntry) -> AsyncIterator[Any]:
    if entry.command is not None:
        parameters = StdioServerParameters(command=entry.command, args=entry.args, env=entry.env, cwd=entry.cwd)
        async with stdio_client(parameters) as streams:
            yield streams
        return
    timeout = httpx2.Timeout(30.0, read=300.0)
    async with (
        httpx2.AsyncClient(headers=entry.headers, timeout=timeout) as http,
        streamable_http_client(entry.url, http_client=http) as streams,
    ):
        yield streams


def _reason(error: BaseException) -> str:
    """The reason in one line; of a group of errors, that of the first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {one_line(str(error), 200)}"
