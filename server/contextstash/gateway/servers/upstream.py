"""One server behind the gateway: its connection, its lists and its calls; it is started again if a call needs it."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import anyio
from anyio.abc import TaskGroup, TaskStatus
from mcp import MCPError
from mcp.client import Client
from mcp.server import ServerRequestContext
from mcp.shared.message import ServerMessageMetadata
from mcp.types import (
    CONNECTION_CLOSED,
    INVALID_REQUEST,
    ClientCapabilities,
    CreateMessageRequest,
    CreateMessageRequestParams,
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
    PromptListChangedNotification,
    ResourceListChangedNotification,
    ToolListChangedNotification,
)
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

from contextstash import __version__
from contextstash.context.text.sanitize import one_line
from contextstash.gateway.servers.offers import Offer, read_offer
from contextstash.gateway.tool_rules import ServerRules
from contextstash_storage.errors import ContextstashError

Request = ServerRequestContext[Any, Any]

MAX_ASKED = 4
"""Questions of one server that are open at once: each is a dialog before a person."""


class Backchannel:
    """Passes on requests for elicitation, sampling and roots, if the client supports them. Such a request does not say
    to which call it belongs, so it is sent for the client's newest call to that server."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._asked = 0
        self._open: list[Request] = []

    @contextmanager
    def during(self, request: Request) -> Iterator[None]:
        """While this context is open, the server's requests are sent on behalf of this client request."""
        self._open.append(request)
        try:
            yield
        finally:
            self._open.remove(request)

    def callbacks(self, capabilities: ClientCapabilities | None) -> dict[str, Any]:
        """The arguments with which an SDK client declares and handles the same capabilities as our own client."""
        found: dict[str, Any] = {}
        if capabilities and capabilities.elicitation:
            found["elicitation_callback"] = self._elicit
        if capabilities and capabilities.sampling:
            found["sampling_callback"] = self._sample
            found["sampling_capabilities"] = capabilities.sampling
        if capabilities and capabilities.roots:
            found["list_roots_callback"] = self._list_roots
        return found

    async def _elicit(self, _: Any, params: ElicitRequestParams) -> ElicitResult | ErrorData:
        answer: ElicitResult | ErrorData = await self._ask(ElicitRequest(params=self._named(params)), ElicitResult)
        return answer

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
        return params.model_copy(update={"message": f"{asker(self._server)} asks: {params.message}"})

    async def _sample(
        self, _: Any, params: CreateMessageRequestParams
    ) -> CreateMessageResult | CreateMessageResultWithTools | ErrorData:
        kind = CreateMessageResultWithTools if params.tools else CreateMessageResult
        answer: CreateMessageResult | CreateMessageResultWithTools | ErrorData = await self._ask(
            CreateMessageRequest(params=params), kind
        )
        return answer

    async def _list_roots(self, _: Any) -> ListRootsResult | ErrorData:
        answer: ListRootsResult | ErrorData = await self._ask(ListRootsRequest(), ListRootsResult)
        return answer

    async def _ask(self, request: Any, answer: Any) -> Any:
        if not self._open:
            return ErrorData(
                code=INVALID_REQUEST, message="No client call is in progress, so this request cannot be passed on."
            )
        if self._asked >= MAX_ASKED:
            return ErrorData(code=INVALID_REQUEST, message=f"{MAX_ASKED} questions are open. Wait for their answers.")
        call = self._open[-1]
        self._asked += 1
        metadata = ServerMessageMetadata(related_request_id=call.request_id)
        try:
            return await call.session.send_request(request, answer, metadata=metadata)
        except MCPError as error:
            return error.error
        finally:
            self._asked -= 1


def asker(server: str) -> str:
    """How a question names the server that asks it."""
    return f"The server '{one_line(server, 60)}'"


logger = logging.getLogger(__name__)

CONNECT_SECONDS = 60.0
"""How long a server may take to start and list what it offers: npx and uvx download a server at its first start."""

RECONNECT_DELAY_SECONDS = 2.0
"""Seconds before the gateway connects again to a server that could not be reached; calls fail meanwhile."""

CHANGE_SECONDS = (1.0, 60.0)
"""The pause after lists were read again, and the longest: it doubles while the server goes on reporting changes. Some
report one whenever their lists are read. A new tool appears that much later."""

LIST_CHANGES = (ToolListChangedNotification, PromptListChangedNotification, ResourceListChangedNotification)

ENDED_STREAM = "SSE stream "
"""How the SDK's texts begin about a response over HTTP that ended too early. The connection itself stays open then."""

Connect = Callable[[Callable[[], None]], Any]
"""Opens a connection to a server. The argument is a callback for the end of the connection."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The client for which servers are connected: its capabilities, and whether its protocol version has no handshake.
    Servers are connected with the same generation of the protocol: in the newer one a server cannot send requests to
    the client, so a server that does would fail only behind the gateway."""

    capabilities: ClientCapabilities | None
    modern: bool


class UpstreamDownError(ContextstashError):
    """A server behind the gateway is unavailable; the message says why."""


class Upstream:
    """A server whose faults do not affect the others. `run` manages its connection in one task; the other methods may
    be called from any task.

    When the connection is lost, `offer` is kept, so that offered names do not change, and `problem` is the reason.
    `variables` are the names of the environment variables that the server gets.
    """

    def __init__(
        self,
        name: str,
        connect: Connect,
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
        self._connect = connect
        self._changed = changed
        self._client: Client | None = None
        self._stale = False
        self._refreshing = False
        self._group: TaskGroup | None = None
        self._peer = Peer(None, modern=False)
        self._tasks: TaskGroup | None = None
        self._connecting = anyio.Lock()
        self._retry_at = 0.0
        self._first = anyio.Event()
        self._lost = anyio.Event()

    @property
    def connected(self) -> bool:
        """Whether the server is connected now."""
        return self._client is not None

    async def run(self, peer: Peer) -> None:
        """Connect for this client. Connections last until this is cancelled."""
        self._peer = peer
        async with anyio.create_task_group() as self._tasks:
            with suppress(UpstreamDownError):
                await self._connected()
            self._first.set()
            await anyio.sleep_forever()

    async def settled(self) -> None:
        """Wait until the server is connected or its first start has failed."""
        await self._first.wait()

    async def client(self) -> Client:
        """The connection, opened again if it was lost. Raises UpstreamDownError if the server is unavailable."""
        await self.settled()
        return await self._connected()

    async def _connected(self) -> Client:
        async with self._connecting:
            if self._client is None and self._tasks is not None:
                await anyio.sleep_until(self._retry_at)
                with suppress(RuntimeError):  # the task has ended before it was connected
                    await self._tasks.start(self._connection)
            if self._client is None:
                self._retry_at = anyio.current_time() + RECONNECT_DELAY_SECONDS
                raise UpstreamDownError(
                    f"The server '{self.name}' is unavailable: {self.problem}. The other servers' tools still work."
                )
            return self._client

    async def ask(self, request: Callable[[Any], Awaitable[Any]]) -> Any:
        """The response to a request that is safe to repeat: if the connection breaks, it is sent once more. Raises
        UpstreamDownError if the server is unavailable; errors of the request are raised as they are."""
        try:
            return await request((await self.client()).session)
        except MCPError as error:
            if not self.broke_off(error):
                raise
            self._drop()
            return await request((await self.client()).session)

    def broke_off(self, error: MCPError) -> bool:
        """Whether an error of a request says that the connection ended, and is not the server's own: the SDK uses the
        code -32000 for it, and many servers use the same for any error."""
        return error.code == CONNECTION_CLOSED and (not self.connected or error.message.startswith(ENDED_STREAM))

    async def _refresh(self) -> None:
        """Read the server's lists again after it reported a change, then notify the client if they differ. No request
        waits for this: if the server does not respond, its earlier offer is kept."""
        pause, longest = CHANGE_SECONDS
        while self._stale:
            self._stale = False
            client, earlier = self._client, self.offer
            try:
                if client is not None:
                    with anyio.fail_after(CONNECT_SECONDS):
                        offer = await read_offer(client.session)
                    self.offer = earlier if offer == earlier else offer
            except Exception as error:  # the earlier lists are kept
                logger.warning("server '%s' did not list what it offers: %s", self.name, _reason(error))
            if self.offer is not earlier:
                await self._changed()
            await anyio.sleep(pause)
            pause = min(2 * pause, longest)
        self._refreshing = False

    def _drop(self) -> None:
        """Forget the connection; the next request makes a new one."""
        self._client, self._group = None, None
        self._lost.set()

    async def _connection(self, *, task_status: TaskStatus[None]) -> None:
        """Connect, and stay connected until the connection is lost."""
        self.problem, lost = None, anyio.Event()
        self._lost = lost
        try:
            with anyio.move_on_after(CONNECT_SECONDS) as limit:
                async with anyio.create_task_group() as group:
                    async with self._open() as client:
                        self.offer = await read_offer(client.session)
                        limit.deadline = math.inf
                        group.start_soon(self._listen, client)
                        self._client, self._group, self._refreshing = client, group, False
                        task_status.started()
                        await self._changed()
                        await lost.wait()
                    group.cancel_scope.cancel()
            self.problem = "it exited"
            if limit.cancelled_caught:
                self.problem = f"it did not respond within {CONNECT_SECONDS:.0f} seconds"
        except Exception as error:  # an error of one server must not stop the others
            self.problem = _reason(error)
        logger.warning("server '%s' is unavailable: %s", self.name, self.problem)
        if self._lost is lost:
            self._drop()

    def _open(self) -> AbstractAsyncContextManager[Client]:
        return Client(
            self._connect(self._drop),
            message_handler=self._on_message,
            client_info=Implementation(name="contextstash-gateway", version=__version__),
            cache=None,
            mode="auto" if self._peer.modern else "legacy",
            **self.backchannel.callbacks(self._peer.capabilities),
        )

    async def _on_message(self, message: Any) -> None:
        if isinstance(message, LIST_CHANGES):
            await self._on_change()

    async def _on_change(self) -> None:
        self._stale = True
        if self._group is not None and not self._refreshing:
            self._refreshing = True
            self._group.start_soon(self._refresh)

    async def _listen(self, client: Client) -> None:
        """Subscribe to changes of the lists: newer protocol versions report them only to subscribers."""
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
        except Exception as error:  # without a subscription its lists may be outdated; its tools still work
            logger.info("server '%s' does not report changes: %s", self.name, _reason(error))


def _reason(error: BaseException) -> str:
    """The reason in one line; of a group of errors, that of the first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, FileNotFoundError):
        return f"the program or folder '{error.filename}' does not exist"
    first = str(error).strip().splitlines()[:1]
    return f"{type(error).__name__}: {first[0][:200]}" if first else type(error).__name__
