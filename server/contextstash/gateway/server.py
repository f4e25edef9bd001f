"""The gateway as one MCP server: it lists what all servers offer, and forwards each request to its server."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import anyio
import pydantic_core
from anyio.abc import TaskGroup
from mcp import MCPError
from mcp.server import Server, ServerRequestContext
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ToolsListChanged,
)
from mcp.types import (
    CONNECTION_CLOSED,
    INVALID_PARAMS,
    PARSE_ERROR,
    CallToolRequestParams,
    CallToolResult,
    CompleteRequestParams,
    CompleteResult,
    Completion,
    ErrorData,
    GetPromptRequestParams,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    PromptReference,
    ReadResourceRequestParams,
    TextContent,
    Tool,
)
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from contextstash import __version__
from contextstash.context.tool_outputs.own_tools import is_own_retrieval
from contextstash.formats.main_argument import main_argument
from contextstash.gateway.directory import Directory
from contextstash.gateway.fleet import Fleet
from contextstash.gateway.names import Origin
from contextstash.gateway.reserved_names import is_own_uri
from contextstash.gateway.servers import request_relay
from contextstash.gateway.servers.answers import HELD_BYTES, UNREADABLE, Held, held_in
from contextstash.gateway.servers.upstream import Peer, Upstream, UpstreamDownError
from contextstash.gateway.servers.worker import RefusedError, Workers
from contextstash.gateway.shortened_results import Call, Shortening
from contextstash.mcp.wire.sendable import has_lone_surrogate, holds_non_finite, sendable

Request = ServerRequestContext[Any, Any]
Answer = TypeVar("Answer")

logger = logging.getLogger(__name__)

INSTRUCTIONS = """\
The tools of several servers. An output that is too long is kept whole under a handle (out_...) and shown in part: \
get_archived_output reads the rest, by pattern or by lines. Do not run the tool again for it."""


HALVES_IN_ARGUMENTS = (
    "The arguments hold half of a surrogate pair (an escape such as \\ud83d alone), to which many servers do not"
    " respond. The server was not called. Send complete characters."
)


class Gateway:
    """Forwards a client's requests to the fleet. `own` is the name of our own server in the fleet: its results are
    never shortened."""

    def __init__(self, shortening: Shortening, workers: Workers, own: str) -> None:
        self.shortening = shortening
        self._workers = workers
        self.own = own
        self.fleet = Fleet([])
        self._bus = InMemorySubscriptionBus()
        self._listening = ListenHandler(self._bus)
        self._group: TaskGroup | None = None
        self._client: Any = None

    def server(self, on_stopped: Callable[[], None] | None = None) -> Server[None]:
        """The server to run; `on_stopped` is called after all servers behind it have stopped."""

        @asynccontextmanager
        async def lifespan(_: Server[None]) -> AsyncIterator[None]:
            try:
                async with self.shortening.stash.in_use(), anyio.create_task_group() as group:
                    self._group = group
                    yield
                    group.cancel_scope.cancel()
            finally:
                if on_stopped:
                    on_stopped()

        server = Server[None](
            "contextstash-gateway",
            title="contextstash gateway",
            version=__version__,
            instructions=INSTRUCTIONS,
            lifespan=lifespan,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_completion=self._complete,
            on_subscriptions_listen=self._listen,
        )
        server.middleware.append(self._start_first)
        return server

    async def notify_list_changes(self) -> None:
        """Notify the client that lists have changed."""
        for event in (ToolsListChanged(), PromptsListChanged(), ResourcesListChanged()):
            await self._bus.publish(event)
        if self._client is not None:
            await self._client.send_tool_list_changed()
            await self._client.send_prompt_list_changed()
            await self._client.send_resource_list_changed()

    async def _start_first(self, ctx: Request, call_next: Callable[[Request], Awaitable[Any]]) -> Any:
        """Start the servers once the client's capabilities are known: they are declared to the servers too."""
        modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
        if ctx.method != "initialize" and self._group is not None:
            self.fleet.start(self._group, Peer(ctx.session.client_capabilities, modern))
        if ctx.method == "tools/list" and not modern:
            answer = await call_next(ctx)
            self._client = ctx.session  # a client without a list needs no notice of its change
            return answer
        return await call_next(ctx)

    async def _listen(self, ctx: Request, params: Any) -> Any:
        return await self._listening(ctx, params)

    async def _list_tools(self, _: Request, __: Any) -> ListToolsResult:
        return ListToolsResult(tools=_items((await self.fleet.directory()).tools))

    async def _list_prompts(self, _: Request, __: Any) -> ListPromptsResult:
        return ListPromptsResult(prompts=_items((await self.fleet.directory()).prompts))

    async def _list_resources(self, _: Request, __: Any) -> ListResourcesResult:
        return ListResourcesResult(resources=_items((await self.fleet.directory()).resources))

    async def _list_templates(self, _: Request, __: Any) -> ListResourceTemplatesResult:
        return ListResourceTemplatesResult(resource_templates=_items((await self.fleet.directory()).templates))

    async def _call_tool(self, ctx: Request, params: CallToolRequestParams) -> Any:
        directory = await self.fleet.directory()
        origin = self.fleet.tool_origin(directory, params.name)
        upstream = self.fleet.upstreams[origin.server]
        if origin.server != self.own and has_lone_surrogate(params.arguments):
            return _failed(HALVES_IN_ARGUMENTS)
        try:
            call = _call(origin, params, directory, upstream)
            return await request_relay.call_tool(upstream, origin.name, params, ctx, partial(self._taken, call))
        except UpstreamDownError as error:
            return _failed(str(error))
        except MCPError as error:
            if error.code == UNREADABLE:
                return _failed(error.message)
            if error.code == PARSE_ERROR:  # the SDK's own text, over HTTP, repeats a part of the response
                return _failed(f"The response of the server '{origin.server}' cannot be read as JSON.")
            if not upstream.broke_off(error):
                raise
            return _failed(_broken_off(origin, upstream))
        except RefusedError as error:
            return _failed(f"The response of '{origin.name}' of the server '{origin.server}' cannot be read: {error}.")
        except ValidationError:
            return _failed(f"The server '{origin.server}' returned an invalid tool result for '{origin.name}'.")

    async def _taken(self, call: Call, answer: Any) -> Any:
        """A tool's response, shortened; in a worker process if it is large."""
        if not isinstance(answer, CallToolResult) or call.server == self.own:
            return answer
        held = held_in(answer)
        if held is None and holds_non_finite(answer.structured_content):  # over HTTP the SDK lets them through
            return _failed(f"The response of the server '{call.server}' cannot be read: it holds NaN or an infinity.")
        if held is None:  # already parsed: it is small or was received over HTTP
            dumped = _as_json(answer)
            if len(dumped) <= HELD_BYTES:
                return await self.shortening.result(answer, call)
            held = Held(b'{"result":%b}' % dumped)
        taken = await self._workers.shortened(held.line, call)
        for warning in taken.warnings:
            logger.warning("%s", warning)
        if taken.error is not None:
            raise MCPError.from_error_data(ErrorData.model_validate(taken.error))
        self.shortening.tally.add(taken.tally)
        return request_relay.tool_result(taken.result)

    async def _get_prompt(self, ctx: Request, params: GetPromptRequestParams) -> Any:
        origin = self.fleet.prompt_origin(await self.fleet.directory(), params.name)
        upstream = self.fleet.upstreams[origin.server]
        return await _or_error(request_relay.get_prompt(upstream, origin.name, params, ctx))

    async def _read_resource(self, ctx: Request, params: ReadResourceRequestParams) -> Any:
        origin = (await self.fleet.directory()).resource(params.uri)
        if origin is not None:
            upstream = self.fleet.upstreams[origin.server]
            return await _or_error(request_relay.read_resource(upstream, origin.name, params, ctx))
        for upstream in self.fleet.upstreams.values():  # a result may link to a resource that no list has
            if is_own_uri(params.uri) and upstream.name != self.own:
                continue
            if upstream.connected and (upstream.offer.resources or upstream.offer.templates):
                try:
                    return await request_relay.read_resource(upstream, params.uri, params, ctx)
                except MCPError:
                    continue
        raise MCPError(INVALID_PARAMS, f"No server has a resource '{params.uri}'.")

    async def _complete(self, _: Request, params: CompleteRequestParams) -> CompleteResult:
        directory = await self.fleet.directory()
        if isinstance(params.ref, PromptReference):
            origin = self.fleet.prompt_origin(directory, params.ref.name)
            ref: Any = params.ref.model_copy(update={"name": origin.name})
        else:
            listed = directory.templates.get(params.ref.uri)
            found = listed[0] if listed else directory.resource(params.ref.uri)
            if found is None:
                raise MCPError(INVALID_PARAMS, f"No server has a resource template '{params.ref.uri}'.")
            origin, ref = found, params.ref.model_copy(update={"uri": found.name})
        upstream = self.fleet.upstreams[origin.server]
        argument = {"name": params.argument.name, "value": params.argument.value}
        context = dict(params.context.arguments or {}) if params.context else None

        async def ask(session: Any) -> Any:
            has = session.server_capabilities
            if has is None or not has.completions:
                return CompleteResult(completion=Completion(values=[]))
            return await session.complete(ref=ref, argument=argument, context_arguments=context)

        answer: CompleteResult = await _or_error(upstream.ask(ask))
        return answer


def _items(listed: Any) -> list[Any]:
    return [item for _, item in listed.values()]


def _call(origin: Origin, params: CallToolRequestParams, directory: Directory, upstream: Upstream) -> Call:
    listed: tuple[Origin, Tool] | None = directory.tools.get(params.name)
    return Call(
        server=origin.server,
        tool=_archived_as(origin),
        argument=main_argument(params.arguments) or "",
        rules=upstream.rules.of(origin.name),
        schema=listed[1].output_schema if listed else None,
    )


def _archived_as(origin: Origin) -> str:
    """The name under which a tool's outputs are archived: never that of a tool of contextstash, whose outputs are not
    shortened."""
    return f"{origin.name} of {origin.server}" if is_own_retrieval(origin.name) else origin.name


def _as_json(result: CallToolResult) -> bytes:
    try:
        return result.model_dump_json(by_alias=True, exclude_none=True).encode()
    except ValueError:  # half of a surrogate pair
        return pydantic_core.to_json(sendable(result.model_dump(by_alias=True, exclude_none=True)))


def _failed(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)


def _broken_off(origin: Origin, upstream: Upstream) -> str:
    return (
        f"The server '{upstream.name}' ended while '{origin.name}' ran: it is unknown whether the call took effect."
        " The next call starts the server again."
    )


async def _or_error(answer: Awaitable[Answer]) -> Answer:
    try:
        return await answer
    except UpstreamDownError as error:
        raise MCPError(CONNECTION_CLOSED, str(error)) from error
    except ValidationError as error:
        raise MCPError(CONNECTION_CLOSED, "The server's response does not follow the protocol.") from error
