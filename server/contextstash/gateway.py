"""The gateway: an MCP server in front of other ones, which keeps their outputs small.

It lists the tools of all servers, and forwards each call to its server, which a call starts again if it has ended. An
output that is too long is archived first; the client gets a preview with the handle, by which our own tool
`get_archived_output` reads the whole. The servers stand in a file in the format that clients use: `mcpServers` (Claude,
Cursor, Gemini and others) or `servers` (VS Code), each entry with `command`, `args`, `env` and `cwd`, or with `url` and
`headers`. The key `contextstash` of an entry contains our own rules.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple

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
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from contextstash import __version__
from contextstash.base.near_names import nearest
from contextstash.mcp.lazy_stash import LazyStash
from contextstash.mcp.server import build_server
from contextstash.mcp.stdio import protocol_server, run_until_signal
from contextstash.messages.main_argument import main_argument
from contextstash.outputs.limits import OutputLimits
from contextstash.outputs.own_tools import OWN_TOOLS, is_own_retrieval
from contextstash.safety.sanitize import one_line
from contextstash.stash_opener import StashOpener
from contextstash_storage.errors import BadInputError

logger = logging.getLogger(__name__)

EXPANDED = ("command", "args", "env", "cwd", "url", "httpUrl", "headers")
"""The keys of an entry in which references to variables are replaced."""

OWN_PREFIX = "CONTEXTSTASH_"
"""The prefix of our own environment variables. No server gets one of them, even if its entry refers to it."""

_VARIABLE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
"""`${VAR}` and `${VAR:-default}` as in Claude Code, `${env:VAR}` as in Cursor and VS Code."""


class _Strict(BaseModel):
    """A misspelt list of denied tools must not be ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ToolLists(_Strict):
    """Which tools are offered: names or shell patterns. `deny` takes precedence."""

    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()

    def offer(self, tool: str) -> bool:
        """Whether a tool is offered at all."""
        return any(fnmatchcase(tool, each) for each in self.allow) and not any(fnmatchcase(tool, e) for e in self.deny)


class ToolRules(_Strict):
    """The limits of the outputs of one tool, over those of its server."""

    limits: dict[str, Any] = {}


class ServerRules(ToolRules):
    """The rules for all tools of a server. `limits` are those of an output, over those of the settings."""

    tools: ToolLists = ToolLists()
    per_tool: dict[str, ToolRules] = {}


class ServerEntry(BaseModel):
    """One server: a program to start if there is a `command`, else one that is reached over streamable HTTP at `url`.
    No repr and no error contains what may hold a secret. `references` are the names of the gateway's environment
    variables that the entry refers to: the reference permits passing them on."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)
    name: str
    command: str | None = Field(default=None, min_length=1)
    args: list[str] = Field(default=[], repr=False)
    env: dict[str, str] = Field(default={}, repr=False)
    cwd: str | None = None
    url: str = Field(
        default="", pattern=r"^https?://[^\s/]", repr=False, validation_alias=AliasChoices("url", "httpUrl")
    )
    headers: dict[str, str] = Field(default={}, repr=False)
    rules: ServerRules = Field(default=ServerRules(), validation_alias="contextstash")
    references: tuple[str, ...] = ()


def read_servers(path: Path, environment: Mapping[str, str]) -> list[ServerEntry]:
    """The servers of a file that are not disabled, in its order. An entry that cannot be used is logged and left out.
    Raises BadInputError if the file cannot be read or no server is left."""
    try:
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise BadInputError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{path} is not JSON ({error}). Comments are not allowed in it.") from error
    table = data.get("mcpServers") or data.get("servers") if isinstance(data, dict) else None
    if not isinstance(table, dict):
        raise BadInputError(f"{path} names no servers: it needs an object 'mcpServers' or 'servers' with an entry.")
    found = []
    for name, value in table.items():
        try:
            if not isinstance(value, dict):
                raise BadInputError("it must be an object with a command or a url.")
            if value.get("disabled") is not True:
                found.append(_entry(name, value, environment))
        except BadInputError as error:
            logger.warning("server '%s' is skipped: %s", name, error)
    if not found:
        raise BadInputError(f"{path} has no server that can be used.")
    return found


def _entry(name: str, value: Mapping[str, Any], environment: Mapping[str, str]) -> ServerEntry:
    given = {key: each for key, each in value.items() if each is not None}
    if given.get("type", given.get("transport")) == "sse":
        raise BadInputError("the type 'sse' is not supported: only stdio and http (streamable HTTP) are.")
    if not {"command", "url", "httpUrl"} & given.keys():
        raise BadInputError("it has neither a command nor a url.")
    references: list[str] = []
    filled = {key: _filled(given[key], environment, references) for key in EXPANDED if key in given}
    try:
        entry = ServerEntry.model_validate({**given, **filled, "name": name, "references": references})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise BadInputError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}.") from None
    for rules in (entry.rules, *entry.rules.per_tool.values()):
        OutputLimits().merged(rules.limits)
    return entry


def _filled(value: Any, environment: Mapping[str, str], references: list[str]) -> Any:
    """The value with its references to variables replaced; one to a variable that is not set is kept. The names of
    those that were read are added to `references`."""

    def variable(match: re.Match[str]) -> str:
        name, default = match.groups()
        if name.upper().startswith(OWN_PREFIX):
            raise BadInputError(f"it refers to {name}, a variable of contextstash itself, which no server gets.")
        if found := environment.get(name):
            references.append(name)
        elif default is None:
            logger.warning("the environment variable %s is not set, so ${%s} was not replaced", name, name)
        return found or (match[0] if default is None else default)

    if isinstance(value, dict):
        return {key: _filled(each, environment, references) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, environment, references) for each in value]
    return _VARIABLE.sub(variable, value) if isinstance(value, str) else value


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


INSTRUCTIONS = """\
The tools of several servers. An output that is too long is kept whole under a handle (out_...) and shown in part: \
get_archived_output reads the rest, by pattern or by lines. Do not run the tool again for it."""

HOST_TOOLS = (
    *("ask_followup_question", "ask_question", "ask_questions", "ask_user", "ask_user_question", "ask_user_questions"),
    *("exit_plan_mode", "question", "questions", "request_user_input"),
)
"""Tools with which hosts ask their user: what these return is read as the user's own answer."""

FIRST_LIST_SECONDS = 10.0
"""Seconds that the first request waits for servers that are starting: as long as Codex waits for a server."""

MAX_RESULT_CHARACTERS = 8 * 1024 * 1024
"""Characters of the texts of one result: two million tokens, ten windows of a large model."""

MAX_TOOL_NAME = 64
"""Characters of a tool's name that every provider takes, of letters, digits, `_` and `-`: with one other name in
the list the whole request is refused."""


class Offered(NamedTuple):
    """An offered tool: its server, its name there, and its definition under the offered one."""

    upstream: Upstream
    name: str
    item: Any


class Gateway:
    """Forwards a client's calls to the configured servers. Our own `tools` are one more server, the last one; its
    results are never shortened. Outputs are archived for the session `session_id`; `limits` apply to servers whose
    entry names no limits."""

    def __init__(
        self,
        entries: Sequence[ServerEntry],
        opener: StashOpener,
        tools: Literal["retrieval", "agent", "all"] = "retrieval",
        *,
        session_id: str | None = None,
        limits: Mapping[str, Any] | None = None,
    ) -> None:
        self._stash, self._session_id, self._limits = LazyStash(opener), session_id, limits or {}
        own = protocol_server(build_server(self._stash, tools, followed=opener.follow is not None))
        self.upstreams = [Upstream(entry, self._changed) for entry in entries]
        self.upstreams.append(Upstream(ServerEntry(name="contextstash"), self._changed, own))
        self.first_list_seconds = FIRST_LIST_SECONDS
        self._past: dict[str, Offered] = {}
        self._group: TaskGroup
        self._client: Any = None
        self._started = self._waited = False

    def server(self, on_stopped: Callable[[], None] = lambda: None) -> Server[None]:
        """The server to run; `on_stopped` is called after all servers behind it have stopped."""

        @asynccontextmanager
        async def lifespan(_: Server[None]) -> AsyncIterator[None]:
            try:
                async with self._stash.in_use(), anyio.create_task_group() as self._group:
                    yield
                    self._group.cancel_scope.cancel()
            finally:
                on_stopped()

        return Server[None](
            "contextstash-gateway",
            version=__version__,
            instructions=INSTRUCTIONS,
            lifespan=lifespan,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
        )

    @property
    def tools(self) -> dict[str, Offered]:
        """The tools of all servers by their offered names: the original ones, with the server's name before those that
        several servers have or that are reserved. They depend on the names alone, not on which server started first;
        ours are kept."""
        items = [(each, item) for each in self.upstreams for item in each.tools]
        times = Counter(tool_name(item.name) for _, item in items)
        found: dict[str, Offered] = {}
        for upstream, item in items:
            offered, number = tool_name(item.name), 1
            if not upstream.own and (times[offered] > 1 or _is_reserved(offered)):
                offered = tool_name(f"{upstream.name}__{item.name}")
            while offered in found or (not upstream.own and _is_reserved(offered)):
                number += 1
                offered = tool_name(f"{upstream.name}__{item.name}_{number}")
            found[offered] = Offered(upstream, item.name, item.model_copy(update={"name": offered}))
        return found

    async def _ready(self, ctx: Request) -> None:
        """Wait until each server has started or failed. The first request starts the servers, as the client's
        capabilities are declared to them too; one that starts later is reported as a change of the lists."""
        if not self._started:
            self._started = True
            for upstream in self.upstreams:
                self._group.start_soon(upstream.run, ctx)
        if not self._waited:
            with anyio.move_on_after(self.first_list_seconds):
                for upstream in self.upstreams:
                    await upstream.settled.wait()
            self._client, self._waited = ctx.session, True

    async def _changed(self) -> None:
        if self._client is not None:
            with suppress(Exception):  # it is a hint only, and newer clients cannot be told outside a request
                await self._client.send_tool_list_changed()

    async def _list_tools(self, ctx: Request, _: Any) -> types.ListToolsResult:
        await self._ready(ctx)
        tools = self.tools
        self._past |= tools
        return types.ListToolsResult(tools=[each.item for each in tools.values()])

    async def _call_tool(self, ctx: Request, params: Any) -> Any:
        await self._ready(ctx)
        found = self._found(params.name)
        request = types.CallToolRequest(params=params.model_copy(update={"name": found.name, "meta": None}))
        try:
            result = await found.upstream.send(request, ctx)
        except UpstreamError as error:
            return _failed(str(error))
        shown = isinstance(result, types.CallToolResult) and not found.upstream.own
        return await self._shortened(result, found, main_argument(params.arguments) or "") if shown else result

    def _found(self, name: str) -> Offered:
        """The server and original name of an offered name, also of one that was offered before. Raises MCPError that
        names the unavailable servers."""
        known = {**self._past, **self.tools}
        if name in known:
            return known[name]
        near = nearest(name, known)
        hint = f" Did you mean '{near}'?" if near else ""
        missing = [f"'{each.name}' ({each.problem})" for each in self.upstreams if each.problem]
        unavailable = f" Unavailable servers: {', '.join(missing)}." if missing else ""
        raise MCPError(types.INVALID_PARAMS, f"There is no tool '{name}'.{hint}{unavailable}")

    async def _shortened(self, result: types.CallToolResult, found: Offered, argument: str) -> types.CallToolResult:
        """The result within the limits. Structured content is left out if the text that says the same was cut: it
        would bring all of it back."""
        texts = [block.text for block in result.content if isinstance(block, types.TextContent)]
        if sum(map(len, texts)) > MAX_RESULT_CHARACTERS:
            return _failed(
                f"'{found.name}' of the server '{found.upstream.name}' returned more than {MAX_RESULT_CHARACTERS:,}"
                " characters. Request less: a narrower query, fewer rows, a page or a part of a file."
            )
        if result.is_error:
            return result
        structured, content = result.structured_content, list(result.content)
        if structured is not None and not texts:
            texts = [json.dumps(structured, ensure_ascii=False)]
        whole = await self._limited("\n".join(texts), found, argument)
        if whole.cut:
            rest = [block for block in content if not isinstance(block, types.TextContent)]
            content = [types.TextContent(type="text", text=whole.text), *rest]
        for place, block in enumerate(content):
            if isinstance(block, types.EmbeddedResource) and isinstance(block.resource, types.TextResourceContents):
                limited = await self._limited(block.resource.text, found, argument)
                resource = block.resource.model_copy(update={"text": limited.text})
                content[place] = block.model_copy(update={"resource": resource})
        return result.model_copy(update={"content": content, "structured_content": None if whole.cut else structured})

    async def _limited(self, text: str, found: Offered, argument: str) -> Any:
        """A text within the limits of its tool, archived whole if it is cut."""
        stash = await self._stash.get()
        rules = found.upstream.entry.rules
        per_tool = rules.per_tool[found.name].limits if found.name in rules.per_tool else {}
        # Never archived under the name of a tool of contextstash, whose outputs are not shortened.
        own_name = is_own_retrieval(found.name)
        return await stash.limit_output(
            text,
            tool=f"{found.name} of {found.upstream.name}" if own_name else found.name,
            argument=argument,
            session_id=self._session_id,
            limits={**self._limits, **rules.limits, **per_tool},
        )


def run_gateway(gateway: Gateway) -> None:
    """Serve until stdin is closed or a signal arrives; then stop the servers behind the gateway."""

    async def serve() -> None:
        stopped = anyio.Event()
        await run_until_signal(gateway.server(on_stopped=stopped.set), stopped)

    anyio.run(serve)


def check(gateway: Gateway) -> None:
    """Start the servers, have each list what it offers, and stop them. Afterwards `problem` of an upstream is None if
    it could be used."""

    async def listed() -> list[str | None]:
        gateway.first_list_seconds = CONNECT_SECONDS
        async with Client(gateway.server(), cache=None) as client:
            await client.list_tools()
            return [each.problem for each in gateway.upstreams]

    for upstream, problem in zip(gateway.upstreams, anyio.run(listed), strict=True):
        upstream.problem = problem


def tool_name(name: str) -> str:
    """The name as every provider takes it. A cut one ends with a digest of the whole."""
    fit = re.sub(r"[^A-Za-z0-9_-]+", "_", name) or "tool"
    digest = sha256(name.encode("utf-8", "replace")).hexdigest()[:8]
    return fit if len(fit) <= MAX_TOOL_NAME else f"{fit[: MAX_TOOL_NAME - 9]}_{digest}"


def _is_reserved(name: str) -> bool:
    """Whether a client, a model or our transcript readers could take this for one of our tools, or for one with which a
    host asks its user."""
    return _plain(name) in map(_plain, (*OWN_TOOLS, *HOST_TOOLS)) or is_own_retrieval(f"contextstash__{name}")


def _plain(name: str) -> str:
    """The name without what does not tell two names apart: case and separators."""
    return "".join(each for each in name.casefold() if each.isalnum())


def _failed(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=True)
