"""The gateway: an MCP server in front of other ones, which keeps their outputs small.

It lists the tools of all servers, and forwards each call to its server, which a call starts again if it has ended. An
output that is too long is archived first; the client gets a preview with the handle, by which our own tool
`get_archived_output` reads the whole. The servers stand in a file in the format that clients use: `mcpServers` (Claude,
Cursor, Gemini and others) or `servers` (VS Code), each entry with `command`, `args`, `env` and `cwd`, or with `url` and
`headers`.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import httpx2
from anyio.abc import TaskGroup
from mcp import MCPError, StdioServerParameters, types
from mcp.client import Client, Transport
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.server import Server, ServerRequestContext
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.session import ServerSession
from pydantic import AliasChoices, BaseModel, Field, ValidationError

from contextstash import __version__
from contextstash.mcp.lazy_stash import LazyStash
from contextstash.mcp.server import ToolServer
from contextstash.messages.base import main_argument
from contextstash.operations import OPERATIONS
from contextstash.outputs.placeholders import own_tool
from contextstash.safety.sanitize import one_line
from contextstash.stash_opener import StashOpener
from contextstash_storage.errors import BadInputError

logger = logging.getLogger(__name__)

_VARIABLE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
"""`${VAR}` and `${VAR:-default}` as in Claude Code, `${env:VAR}` as in Cursor and VS Code."""


class WebServer(BaseModel):
    """A server that is reached over streamable HTTP."""

    url: str = Field(pattern=r"^https?://[^\s/]", validation_alias=AliasChoices("url", "httpUrl"))
    headers: dict[str, str] = {}


Entry = StdioServerParameters | WebServer
"""A server: a program to start if its entry has a `command`."""


def read_servers(path: Path, environment: Mapping[str, str]) -> dict[str, Entry]:
    """The servers of a file that are not disabled, by name in its order. An entry that cannot be used is logged and
    left out. Raises BadInputError if the file cannot be read or no server is left."""
    try:
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise BadInputError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{path} is not JSON ({error}). Comments are not allowed in it.") from error
    table = data.get("mcpServers") or data.get("servers") if isinstance(data, dict) else None
    if not isinstance(table, dict):
        raise BadInputError(f"{path} names no servers: it needs an object 'mcpServers' or 'servers' with an entry.")
    found = {}
    for name, value in table.items():
        given = value if isinstance(value, dict) else {}
        try:
            if given.get("disabled") is not True:
                found[name] = _entry(given, environment)
        except BadInputError as error:
            logger.warning("server '%s' is skipped: %s", name, error)
    if not found:
        raise BadInputError(f"{path} has no server that can be used.")
    return found


def _entry(value: dict[str, Any], environment: Mapping[str, str]) -> Entry:
    kind: type[Entry] = StdioServerParameters if value.get("command") else WebServer
    if value.get("type") == "sse" or not (value.get("command") or {"url", "httpUrl"} & value.keys()):
        raise BadInputError("it needs a command, or the url of a server over streamable HTTP (SSE is not supported).")
    try:
        return kind.model_validate(_filled(value, environment))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise BadInputError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}.") from None


def _filled(value: Any, environment: Mapping[str, str]) -> Any:
    """The value with its references to variables replaced; one to a variable that is not set is kept."""

    def variable(match: re.Match[str]) -> str:
        name, default = match.groups()
        found = environment.get(name)
        if not found and default is None:
            logger.warning("the environment variable %s is not set, so ${%s} was not replaced", name, name)
        return found or (match[0] if default is None else default)

    if isinstance(value, dict):
        return {key: _filled(each, environment) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, environment) for each in value]
    return _VARIABLE.sub(variable, value) if isinstance(value, str) else value


CONNECT_SECONDS = 60.0
"""How long a server may take to start and list its tools: npx and uvx download a server at its first start."""

Request = ServerRequestContext[Any, Any]


class Upstream:
    """A server whose faults do not affect the others. When its connection is lost, its `tools` are kept, so that
    offered names do not change. `problem` is why it is unavailable; None while it is connected. `settled` is set when
    it is connected or has failed."""

    def __init__(self, name: str, entry: Entry) -> None:
        self.name = name
        self._entry = entry
        self.tools: list[types.Tool] = []
        self.problem: str | None = "it is still starting"
        self.settled = anyio.Event()
        self._client: Client | None = None
        self._lost, self._forgotten, self._wanted = anyio.Event(), anyio.Event(), anyio.Event()

    async def run(self) -> None:
        """Connect, and when the connection is lost and a call wants it, connect again, until this is cancelled."""
        while True:
            settled = self.settled  # a call that finds the connection lost puts another one in its place
            try:
                with anyio.move_on_after(CONNECT_SECONDS) as limit:
                    streams = _watched(_transport(self._entry, self._forgotten), self._lost)
                    async with Client(streams, cache=None) as client:
                        self.tools = await _tools_of(client)
                        limit.deadline = math.inf
                        self._client, self.problem = client, None
                        settled.set()
                        await self._lost.wait()
                late = f"it did not respond for {CONNECT_SECONDS:.0f} s"
                self.problem = late if limit.cancelled_caught else "it exited"
            except Exception as error:  # an error of one server must not stop the others
                self.problem = _reason(error)
            logger.warning("server '%s' is unavailable: %s", self.name, self.problem)
            self._client = None
            settled.set()
            await self._wanted.wait()
            self._lost, self._forgotten, self._wanted = anyio.Event(), anyio.Event(), anyio.Event()

    async def send(self, request: types.CallToolRequest, ctx: Request, *, again: bool = True) -> types.CallToolResult:
        """The result of a client's call, on a new connection if the last one was lost; progress is passed on. Raises
        ToolError if the server is unavailable, or the MCPError of the server."""
        if self._lost.is_set():  # the SDK may take seconds to close its client, which refuses calls meanwhile
            self._client = None
        if self._client is None and self.settled.is_set():
            self.settled = anyio.Event()
            self._wanted.set()
        await self.settled.wait()
        lost, forgotten = self._lost, self._forgotten
        if (client := self._client) is None:
            raise ToolError(
                f"The server '{self.name}' is unavailable: {self.problem}. The other servers' tools still work."
            )
        try:
            return await client.session.send_request(
                request, types.CallToolResult, progress_callback=ctx.session.report_progress
            )
        except ValidationError as error:
            raise ToolError(f"The answer of the server '{self.name}' does not follow the protocol.") from error
        except MCPError as error:
            if forgotten.is_set() and again:  # the call was refused, so that it can be sent once more
                lost.set()
                return await self.send(request, ctx, again=False)
            if error.code != types.CONNECTION_CLOSED or not lost.is_set():  # servers have errors of this code too
                raise
            raise ToolError(
                f"The server '{self.name}' ended while '{request.params.name}' ran: it is unknown whether the call took"
                " effect. The next call starts the server again."
            ) from error


async def _tools_of(client: Client) -> list[types.Tool]:
    """The tools of a server, from all pages of its list."""
    page = await client.list_tools()
    found = page.tools
    while page.next_cursor:
        page = await client.list_tools(cursor=page.next_cursor)
        found = [*found, *page.tools]
    return found


def _transport(entry: Entry, forgotten: anyio.Event) -> Transport:
    """How the SDK's client reaches a server. `forgotten` is set if it knows the session no more, which status 404 says
    (MCP 2025-11-25, Session Management)."""
    if isinstance(entry, StdioServerParameters):
        return stdio_client(entry)

    async def note(response: httpx2.Response) -> None:
        if response.status_code == 404 and "mcp-session-id" in response.request.headers:
            forgotten.set()

    seconds, hooks = httpx2.Timeout(30.0, read=300.0), {"response": [note]}
    http = httpx2.AsyncClient(headers=entry.headers, timeout=seconds, event_hooks=hooks)
    return streamable_http_client(entry.url, http_client=http)


@asynccontextmanager
async def _watched(transport: Transport, lost: anyio.Event) -> AsyncIterator[Any]:
    """The streams of a transport; `lost` is set when its server ends, which the SDK says only to waiting calls."""
    passed, received = anyio.create_memory_object_stream[Any](0)
    async with transport as (read, write), anyio.create_task_group() as group:

        async def pass_on() -> None:
            async with passed:
                with suppress(anyio.BrokenResourceError):  # this side has closed the connection
                    async for message in read:
                        await passed.send(message)
                lost.set()

        group.start_soon(pass_on)
        yield received, write
        group.cancel_scope.cancel()


def _reason(error: BaseException) -> str:
    """The reason in one line; of a group of errors, that of the first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return one_line(str(error), 200) or "it failed without saying why"


INSTRUCTIONS = """\
The tools of several servers. An output that is too long is kept whole under a handle (out_...) and shown in part: \
get_archived_output reads the rest, by pattern or by lines. Do not run the tool again for it."""

RETRIEVAL = "get_archived_output"

LIST_SECONDS = 10.0
"""Seconds that requests wait for servers that are starting: as long as Codex waits for a server."""

MAX_TOOL_NAME = 64
"""Characters of a tool's name that every provider takes, of letters, digits, `_` and `-`: with one other name in
the list the whole request is refused."""


class Gateway:
    """Forwards a client's calls to the configured servers. Our own tool that reads an output is the last one; its
    results are never shortened. `limits` are those of an output, over those of the settings."""

    def __init__(
        self, entries: Mapping[str, Entry], opener: StashOpener, *, limits: Mapping[str, Any] | None = None
    ) -> None:
        self._stash, self._limits = LazyStash(opener), limits or {}
        self._own = ToolServer(self._stash, [OPERATIONS[RETRIEVAL]], followed=False)
        self._upstreams = [Upstream(name, entry) for name, entry in entries.items()]
        self._listed_by = math.inf
        self._tasks: TaskGroup  # while it is served

    def server(self) -> Server[None]:
        """The server to run; those behind it stop before it does."""

        @asynccontextmanager
        async def lifespan(_: Server[None]) -> AsyncIterator[None]:
            async with aclosing(self._stash), anyio.create_task_group() as self._tasks:
                self._listed_by = anyio.current_time() + LIST_SECONDS
                for upstream in self._upstreams:
                    self._tasks.start_soon(upstream.run)
                yield
                self._tasks.cancel_scope.cancel()

        return Server[None](
            "contextstash-gateway",
            version=__version__,
            instructions=INSTRUCTIONS,
            lifespan=lifespan,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
        )

    async def _offered(self) -> dict[str, tuple[Upstream, types.Tool]]:
        """The tools of all servers that have started, by their offered names: the server's and the tool's own, so that
        no two servers share one, and none has that of our own tools, or of one with which a host asks its user."""
        with anyio.CancelScope(deadline=self._listed_by):
            for upstream in self._upstreams:
                await upstream.settled.wait()
        found: dict[str, tuple[Upstream, types.Tool]] = {}
        for upstream in self._upstreams:
            for tool in upstream.tools:
                found[offered_name(f"{upstream.name}__{tool.name}", found)] = upstream, tool
        return found

    async def _list_tools(self, ctx: Request, _: Any) -> types.ListToolsResult:
        """All tools, without the schemas of results: these would promise structured content, which a cut result has
        not. If a server is late, the client is told when it can list more."""
        theirs = [
            tool.model_copy(update={"name": name, "output_schema": None})
            for name, (_, tool) in (await self._offered()).items()
        ]
        if late := [each for each in self._upstreams if not each.settled.is_set()]:
            self._tasks.start_soon(self._tell, ctx.session, late)
        return types.ListToolsResult(tools=[*theirs, *await self._own.list_tools()])

    async def _tell(self, client: ServerSession, late: Sequence[Upstream]) -> None:
        for upstream in late:
            await upstream.settled.wait()
        await client.send_tool_list_changed()

    async def _call_tool(self, ctx: Request, params: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            return await self._called(ctx, params)
        except ToolError as error:
            return types.CallToolResult(content=[types.TextContent(type="text", text=str(error))], is_error=True)

    async def _called(self, ctx: Request, params: types.CallToolRequestParams) -> types.CallToolResult:
        """The result of a call. Raises ToolError, or the MCPError of the server."""
        if params.name == RETRIEVAL:
            return await self._own.call_tool(RETRIEVAL, params.arguments or {})
        found = (await self._offered()).get(params.name)
        if found is None:
            missing = [f"'{each.name}' ({each.problem})" for each in self._upstreams if each.problem]
            unavailable = f" Unavailable servers: {', '.join(missing)}." if missing else ""
            raise MCPError(types.INVALID_PARAMS, f"There is no tool '{params.name}'.{unavailable}")
        upstream, tool = found
        request = types.CallToolRequest(params=params.model_copy(update={"name": tool.name, "meta": None}))
        result = await upstream.send(request, ctx)
        return result if result.is_error else await self._shortened(result, params)

    async def _shortened(self, result: types.CallToolResult, call: types.CallToolRequestParams) -> types.CallToolResult:
        """The result within the limits, archived whole if it is cut, with the texts of resources in it. Structured
        content is left out if the text that says the same was cut: it would bring all of it back."""
        parts = [block.resource if isinstance(block, types.EmbeddedResource) else block for block in result.content]
        texts = [part.text for part in parts if isinstance(part, types.TextContent | types.TextResourceContents)]
        if result.structured_content is not None and not texts:
            texts = [json.dumps(result.structured_content, ensure_ascii=False)]
        stash = await self._stash.get()
        argument = main_argument(call.arguments) or ""
        whole = await stash.limit_output("\n".join(texts), tool=call.name, argument=argument, limits=self._limits)
        if whole.handle is None:
            return result
        has_text = (types.TextContent, types.TextResourceContents)
        rest = [block for block, part in zip(result.content, parts, strict=True) if not isinstance(part, has_text)]
        content = [types.TextContent(type="text", text=whole.text), *rest]
        return result.model_copy(update={"content": content, "structured_content": None})


def offered_name(name: str, taken: Collection[str]) -> str:
    """The name as every provider takes it, and as no other tool has it. Clients put our server's name before it."""
    fit = re.sub(r"[^A-Za-z0-9_-]+", "_", name)
    found, number = fit[:MAX_TOOL_NAME], 1
    while found in taken or own_tool(f"contextstash__{found}"):
        number += 1
        found = f"{fit[: MAX_TOOL_NAME - 4]}_{number}"
    return found
