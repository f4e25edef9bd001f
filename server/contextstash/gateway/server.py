"""The gateway as one MCP server: it lists what all servers offer, and forwards each request to its server.

An output that is too long is archived first; the client gets a preview with the handle, by which our own tool
`get_archived_output` reads the whole.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
from anyio.abc import TaskGroup
from mcp import MCPError
from mcp.client.session import ClientRequestContext
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
    INTERNAL_ERROR,
    INVALID_PARAMS,
    CallToolRequest,
    CallToolResult,
    CompleteResult,
    Completion,
    EmbeddedResource,
    ErrorData,
    GetPromptRequest,
    GetPromptResult,
    InputRequiredResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    PromptReference,
    ReadResourceRequest,
    ReadResourceResult,
    TextContent,
    TextResourceContents,
)
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from contextstash import __version__
from contextstash.base.near_names import nearest
from contextstash.gateway.names import Lists, Offered
from contextstash.gateway.upstream import Peer, Upstream, UpstreamDownError
from contextstash.mcp.lazy_stash import LazyStash
from contextstash.messages.main_argument import main_argument
from contextstash.outputs.own_tools import is_own_retrieval
from contextstash_storage.errors import ContextstashError

logger = logging.getLogger(__name__)

Request = ServerRequestContext[Any, Any]

INSTRUCTIONS = """\
The tools of several servers. An output that is too long is kept whole under a handle (out_...) and shown in part: \
get_archived_output reads the rest, by pattern or by lines. Do not run the tool again for it."""

FIRST_LIST_SECONDS = 10.0
"""Seconds that the first list waits for servers that are starting. Servers that start later are reported as a change of
the lists."""

MAX_RESULT_CHARACTERS = 8 * 1024 * 1024
"""Characters of the texts of one result: two million tokens, ten windows of a large model."""

MAX_ROUNDS = 10
"""How often one call may ask the user before it fails, so that a server cannot ask endlessly."""

CONNECTION_META = "io.modelcontextprotocol/"
"""The prefix of the names in `_meta` that belong to one connection."""

TOOL_RESULT: TypeAdapter[Any] = TypeAdapter(CallToolResult | InputRequiredResult)
PROMPT_RESULT: TypeAdapter[Any] = TypeAdapter(GetPromptResult | InputRequiredResult)
RESOURCE_RESULT: TypeAdapter[Any] = TypeAdapter(ReadResourceResult | InputRequiredResult)


class Gateway:
    """Forwards a client's requests to the servers. Results of our own server, the last one, are never shortened."""

    def __init__(self, stash: LazyStash, session_id: str | None, limits: Mapping[str, Any]) -> None:
        self._stash, self._session_id, self._limits = stash, session_id, limits
        self.upstreams: dict[str, Upstream] = {}
        self.first_list_seconds = FIRST_LIST_SECONDS
        self._past: dict[str, Offered] = {}
        self._bus = InMemorySubscriptionBus()
        self._listening = ListenHandler(self._bus)
        self._group: TaskGroup | None = None
        self._started = self._waited = False
        self._client: Any = None

    def server(self, on_stopped: Callable[[], None] | None = None) -> Server[None]:
        """The server to run; `on_stopped` is called after all servers behind it have stopped."""

        @asynccontextmanager
        async def lifespan(_: Server[None]) -> AsyncIterator[None]:
            try:
                async with self._stash.in_use(), anyio.create_task_group() as self._group:
                    yield
                    self._group.cancel_scope.cancel()
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
            on_subscriptions_listen=self._listening,
        )
        server.middleware.append(self._start_first)
        return server

    async def changed(self) -> None:
        """Notify the client that lists have changed."""
        for event in (ToolsListChanged(), PromptsListChanged(), ResourcesListChanged()):
            await self._bus.publish(event)
        if self._client is not None:
            await self._client.send_tool_list_changed()
            await self._client.send_prompt_list_changed()
            await self._client.send_resource_list_changed()

    async def lists(self) -> Lists:
        """The lists of all servers as they are now. The first call waits until each has started or failed, at most
        `first_list_seconds`."""
        if not self._waited:
            with anyio.move_on_after(self.first_list_seconds):
                for upstream in self.upstreams.values():
                    await upstream.settled()
            self._waited = True
        return Lists.of(self.upstreams)

    async def _start_first(self, ctx: Request, call_next: Any) -> Any:
        """Start the servers once the client's capabilities are known: they are declared to the servers too."""
        modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
        if ctx.method != "initialize" and self._group is not None and not self._started:
            self._started = True
            for upstream in self.upstreams.values():
                self._group.start_soon(upstream.run, Peer(ctx.session.client_capabilities, modern))
        answer = await call_next(ctx)
        if ctx.method == "tools/list" and not modern:
            self._client = ctx.session  # a client without a list needs no notice of its change
        return answer

    async def _list_tools(self, _: Request, __: Any) -> ListToolsResult:
        tools = (await self.lists()).tools
        self._past |= tools
        # A result whose text was cut has no structured content: a schema would promise it.
        return ListToolsResult(
            tools=[
                each.item if each.upstream.own is not None else each.item.model_copy(update={"output_schema": None})
                for each in tools.values()
            ]
        )

    async def _list_prompts(self, _: Request, __: Any) -> ListPromptsResult:
        return ListPromptsResult(prompts=[each.item for each in (await self.lists()).prompts.values()])

    async def _list_resources(self, _: Request, __: Any) -> ListResourcesResult:
        return ListResourcesResult(resources=[each.item for each in (await self.lists()).resources.values()])

    async def _list_templates(self, _: Request, __: Any) -> ListResourceTemplatesResult:
        found = (await self.lists()).templates
        return ListResourceTemplatesResult(resource_templates=[each.item for each in found.values()])

    async def _call_tool(self, ctx: Request, params: Any) -> Any:
        lists = await self.lists()
        found = self._found("tool", params.name, {**self._past, **lists.tools})
        upstream = found.upstream
        request = CallToolRequest(params=_own_params(params, name=found.name))
        try:
            result = await self._sent(upstream, await upstream.session(), request, TOOL_RESULT, ctx)
            return await self._shortened(result, found, params.arguments)
        except ValidationError:
            return _failed(f"The server '{upstream.name}' returned an invalid tool result for '{found.name}'.")
        except ContextstashError as error:
            return _failed(str(error))
        except MCPError as error:
            if not upstream.broke_off(error):
                raise
            return _failed(
                f"The server '{upstream.name}' ended while '{found.name}' ran: it is unknown whether the call took"
                " effect. The next call starts the server again."
            )

    async def _get_prompt(self, ctx: Request, params: Any) -> Any:
        found = self._found("prompt", params.name, (await self.lists()).prompts)
        request = GetPromptRequest(params=_own_params(params, name=found.name))
        return await self._repeatable(found.upstream, request, PROMPT_RESULT, ctx)

    async def _read_resource(self, ctx: Request, params: Any) -> Any:
        found = (await self.lists()).resource(params.uri)
        if found is not None:
            request = ReadResourceRequest(params=_own_params(params, uri=found.name))
            return await self._repeatable(found.upstream, request, RESOURCE_RESULT, ctx)
        for upstream in self.upstreams.values():  # a result may link to a resource that no list has
            if upstream.connected and upstream.own is None and (upstream.offer.resources or upstream.offer.templates):
                try:
                    request = ReadResourceRequest(params=_own_params(params))
                    return await self._repeatable(upstream, request, RESOURCE_RESULT, ctx)
                except MCPError:
                    continue
        raise MCPError(INVALID_PARAMS, f"No server has a resource '{params.uri}'.")

    async def _complete(self, _: Request, params: Any) -> Any:
        lists = await self.lists()
        if isinstance(params.ref, PromptReference):
            found = self._found("prompt", params.ref.name, lists.prompts)
            ref: Any = params.ref.model_copy(update={"name": found.name})
        else:
            listed = lists.templates.get(params.ref.uri) or lists.resource(params.ref.uri)
            if listed is None:
                raise MCPError(INVALID_PARAMS, f"No server has a resource template '{params.ref.uri}'.")
            found = listed
            ref = params.ref.model_copy(update={"uri": found.name})
        argument = {"name": params.argument.name, "value": params.argument.value}
        context = dict(params.context.arguments or {}) if params.context else None

        async def ask(session: Any) -> Any:
            has = session.server_capabilities
            if has is None or not has.completions:
                return CompleteResult(completion=Completion(values=[]))
            return await session.complete(ref=ref, argument=argument, context_arguments=context)

        return await self._down_as_error(found.upstream.ask(ask))

    def _found(self, what: str, name: str, known: Mapping[str, Offered]) -> Offered:
        """The server and original name of an offered name. Raises MCPError that names the unavailable servers."""
        if name in known:
            return known[name]
        near = nearest(name, known)
        hint = f" Did you mean '{near}'?" if near else ""
        missing = [
            f"'{each.name}' ({each.problem or 'still starting'})"
            for each in self.upstreams.values()
            if not each.connected
        ]
        unavailable = f" Unavailable servers: {', '.join(missing)}." if missing else ""
        raise MCPError(INVALID_PARAMS, f"There is no {what} '{name}'.{hint}{unavailable}")

    async def _repeatable(self, upstream: Upstream, request: Any, kind: Any, ctx: Request) -> Any:
        """The result of a request that may be sent again if the connection breaks."""

        async def ask(session: Any) -> Any:
            return await self._sent(upstream, session, request, kind, ctx)

        return await self._down_as_error(upstream.ask(ask))

    async def _sent(self, upstream: Upstream, session: Any, request: Any, kind: Any, ctx: Request) -> Any:
        """The final result of a request. A client of an older protocol cannot get a request for input as a result, so
        it is asked for each input in a request of its own."""
        with upstream.questions.during(ctx):
            result = await session.send_request(request, kind, progress_callback=ctx.session.report_progress)
            if not isinstance(result, InputRequiredResult) or ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
                return upstream.questions.named(result) if isinstance(result, InputRequiredResult) else result
            for _ in range(MAX_ROUNDS):
                answers = {key: await _asked(session, key, each) for key, each in (result.input_requests or {}).items()}
                more = {"input_responses": answers, "request_state": result.request_state}
                again = request.model_copy(update={"params": request.params.model_copy(update=more)})
                result = await session.send_request(again, kind, progress_callback=ctx.session.report_progress)
                if not isinstance(result, InputRequiredResult):
                    return result
        raise MCPError(INTERNAL_ERROR, f"The server asked for input more than {MAX_ROUNDS} times in one call.")

    async def _down_as_error(self, answer: Any) -> Any:
        try:
            return await answer
        except UpstreamDownError as error:
            raise MCPError(CONNECTION_CLOSED, str(error)) from error
        except ValidationError as error:
            raise MCPError(CONNECTION_CLOSED, "The server's response does not follow the protocol.") from error

    async def _shortened(self, result: Any, found: Offered, arguments: Mapping[str, Any] | None) -> Any:
        """The result within the limits. Structured content is left out if the text that says the same was cut: it
        would bring all of it back."""
        if not isinstance(result, CallToolResult) or found.upstream.own is not None:
            return result
        texts = [block.text for block in result.content if isinstance(block, TextContent)]
        if sum(map(len, texts)) > MAX_RESULT_CHARACTERS:
            return _failed(
                f"'{found.name}' of the server '{found.upstream.name}' returned more than {MAX_RESULT_CHARACTERS:,}"
                " characters. Request less: a narrower query, fewer rows, a page or a part of a file."
            )
        if result.is_error:
            return result
        limit = _Limit(self, found, main_argument(arguments) or "")
        whole = await limit.of("\n".join(texts))
        structured, content = result.structured_content, list(result.content)
        if whole.cut:
            structured = None
            rest = [block for block in content if not isinstance(block, TextContent)]
            content = [TextContent(type="text", text=whole.text), *rest]
        elif structured is not None:
            listed = await limit.of(json.dumps(structured, ensure_ascii=False))
            if listed.cut:
                structured = None
                content.append(TextContent(type="text", text=listed.text))
        content = [await limit.of_embedded(block) for block in content]
        return result.model_copy(update={"content": content, "structured_content": structured})

    async def limited(self, text: str, found: Offered, argument: str) -> Any:
        """A text within the limits of its tool, archived whole if it is cut."""
        stash = await self._stash.get()
        # Never archived under the name of a tool of contextstash, whose outputs are not shortened.
        own_name = is_own_retrieval(found.name)
        return await stash.limit_output(
            text,
            tool=f"{found.name} of {found.upstream.name}" if own_name else found.name,
            argument=argument,
            session_id=self._session_id,
            limits={**self._limits, **found.upstream.rules.limits_of(found.name)},
        )


class _Limit:
    """The limits of one call's outputs."""

    def __init__(self, gateway: Gateway, found: Offered, argument: str) -> None:
        self._gateway, self._found, self._argument = gateway, found, argument

    async def of(self, text: str) -> Any:
        return await self._gateway.limited(text, self._found, self._argument)

    async def of_embedded(self, block: Any) -> Any:
        """A block; the text of an embedded resource is limited by itself."""
        if not isinstance(block, EmbeddedResource) or not isinstance(block.resource, TextResourceContents):
            return block
        limited = await self.of(block.resource.text)
        return block.model_copy(update={"resource": block.resource.model_copy(update={"text": limited.text})})


def _own_params(params: Any, **changes: Any) -> Any:
    """The parameters with these changes, and without the metadata of the client's own connection."""
    given = params.model_dump(by_alias=True, exclude_none=True)
    meta = {
        name: value
        for name, value in (given.pop("_meta", None) or {}).items()
        if name != "progressToken" and not name.startswith(CONNECTION_META)
    }
    return type(params).model_validate({**given, **changes, **({"_meta": meta} if meta else {})})


async def _asked(session: Any, key: str, request: Any) -> Any:
    answer = await session.dispatch_input_request(ClientRequestContext(session=session, request_id=key), request)
    if isinstance(answer, ErrorData):
        raise MCPError.from_error_data(answer)
    return answer


def _failed(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)
