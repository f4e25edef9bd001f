"""The gateway as one MCP server: it lists the tools of all servers, and forwards each call to its server.

An output that is too long is archived first; the client gets a preview with the handle, by which our own tool
`get_archived_output` reads the whole.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from typing import Any, Literal, NamedTuple

import anyio
from anyio.abc import TaskGroup
from mcp import MCPError, types
from mcp.client import Client
from mcp.server import Server

from contextstash import __version__
from contextstash.base.near_names import nearest
from contextstash.gateway.servers import ServerEntry
from contextstash.gateway.upstream import CONNECT_SECONDS, Request, Upstream, UpstreamError
from contextstash.mcp.lazy_stash import LazyStash
from contextstash.mcp.server import build_server
from contextstash.mcp.stdio import protocol_server, run_until_signal
from contextstash.messages.main_argument import main_argument
from contextstash.outputs.own_tools import OWN_TOOLS, is_own_retrieval
from contextstash.stash_opener import StashOpener

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
