"""Forwarded requests: their progress is reported to the client, and the server's own requests are sent to it."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio
from mcp import MCPError
from mcp.client.session import ClientRequestContext
from mcp.server import ServerRequestContext
from mcp.types import (
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    ErrorData,
    GetPromptRequest,
    GetPromptRequestParams,
    GetPromptResult,
    InputRequiredResult,
    ReadResourceRequest,
    ReadResourceRequestParams,
    ReadResourceResult,
)
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter

from contextstash.gateway.servers.upstream import Upstream

PER_SECOND = 5
"""Notifications of one call: as many as a person can follow. Each unbounded one kept other servers' calls waiting, by
20 seconds if one server sent 20,000."""

MAX_MESSAGE_CHARS = 1_000

Send = Callable[[float, float | None, str | None], Awaitable[None]]


class NewestProgress:
    """Called with each notification; `close` sends what is still held, and ends it."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._sent_at: deque[float] = deque(maxlen=PER_SECOND)
        self._newest: tuple[float, float | None, str | None] | None = None
        self._waiting = False

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        self._newest = (progress, total, message and message[:MAX_MESSAGE_CHARS])
        if self._waiting:
            return
        self._waiting = True
        try:
            if len(self._sent_at) == PER_SECOND:
                await anyio.sleep(self._sent_at[0] + 1.0 - anyio.current_time())
            await self.close()
        finally:
            self._waiting = False

    async def close(self) -> None:
        """Send the newest notification, if it has not been sent."""
        newest, self._newest = self._newest, None
        if newest is not None:
            self._sent_at.append(anyio.current_time())
            await self._send(*newest)


Request = ServerRequestContext[Any, Any]

MAX_ROUNDS = 10
"""How often one call may request input before it fails, so that a server cannot ask endlessly."""

ENVELOPE = "io.modelcontextprotocol/"
"""The prefix of the names in `_meta` that belong to one connection."""

_TOOL_RESULT: TypeAdapter[Any] = TypeAdapter(CallToolResult | InputRequiredResult)
_PROMPT_RESULT: TypeAdapter[Any] = TypeAdapter(GetPromptResult | InputRequiredResult)
_RESOURCE_RESULT: TypeAdapter[Any] = TypeAdapter(ReadResourceResult | InputRequiredResult)


def tool_result(value: Any) -> Any:
    """A parsed response as a tool's result or its request for input. Raises ValidationError if it is neither."""
    return _TOOL_RESULT.validate_python(value, by_name=False)


async def call_tool(
    upstream: Upstream,
    name: str,
    params: CallToolRequestParams,
    ctx: Request,
    taken: Callable[[Any], Awaitable[Any]],
) -> Any:
    """Call a tool and return its result; `taken` converts each response of its server. The tool is never called twice
    for one client call."""

    async def send(session: Any, answers: Mapping[str, Any]) -> Any:
        request = CallToolRequest(params=_own_params(params, {"name": name, **answers}, CallToolRequestParams))
        progress = NewestProgress(ctx.session.report_progress)
        answer = await session.send_request(request, _TOOL_RESULT, progress_callback=progress)
        await progress.close()
        return await taken(answer)

    with upstream.backchannel.during(ctx):
        session = (await upstream.client()).session
        return await _answered(upstream, session, lambda answers: send(session, answers), ctx)


async def get_prompt(upstream: Upstream, name: str, params: GetPromptRequestParams, ctx: Request) -> Any:
    """A prompt as its server returns it."""

    def request(answers: Mapping[str, Any]) -> GetPromptRequest:
        return GetPromptRequest(params=_own_params(params, {"name": name, **answers}, GetPromptRequestParams))

    return await _repeatable(upstream, request, _PROMPT_RESULT, ctx)


async def read_resource(upstream: Upstream, uri: str, params: ReadResourceRequestParams, ctx: Request) -> Any:
    """A resource as its server returns it."""

    def request(answers: Mapping[str, Any]) -> ReadResourceRequest:
        return ReadResourceRequest(params=_own_params(params, {"uri": uri, **answers}, ReadResourceRequestParams))

    return await _repeatable(upstream, request, _RESOURCE_RESULT, ctx)


async def _repeatable(upstream: Upstream, request: Callable[[Mapping[str, Any]], Any], kind: Any, ctx: Request) -> Any:
    """The result of a request that may be sent again if the connection breaks."""

    async def ask(session: Any) -> Any:
        return await _answered(upstream, session, lambda answers: session.send_request(request(answers), kind), ctx)

    with upstream.backchannel.during(ctx):
        return await upstream.ask(ask)


def _own_params(params: Any, changes: Mapping[str, Any], kind: Any) -> Any:
    """The parameters with these changes, and without the metadata of the client's own connection."""
    given = params.model_dump(by_alias=True, exclude_none=True)
    meta = {
        name: value
        for name, value in (given.pop("_meta", None) or {}).items()
        if name != "progressToken" and not name.startswith(ENVELOPE)
    }
    return kind.model_validate({**given, **changes, **({"_meta": meta} if meta else {})})


async def _answered(
    upstream: Upstream, session: Any, send: Callable[[Mapping[str, Any]], Awaitable[Any]], ctx: Request
) -> Any:
    """The final result. A client of an older protocol cannot get a request for input as a result, so each input is
    requested from it in a separate request."""
    result = await send({})
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return upstream.backchannel.named(result) if isinstance(result, InputRequiredResult) else result
    for _ in range(MAX_ROUNDS):
        if not isinstance(result, InputRequiredResult):
            return result
        answers = {key: await _asked(session, key, each) for key, each in (result.input_requests or {}).items()}
        result = await send({"inputResponses": answers, "requestState": result.request_state})
    raise MCPError(-32603, f"The server asked for input more than {MAX_ROUNDS} times in one call.")


async def _asked(session: Any, key: str, request: Any) -> Any:
    context = ClientRequestContext(session=session, request_id=key)
    answer = await session.dispatch_input_request(context, request)
    if isinstance(answer, ErrorData):
        raise MCPError.from_error_data(answer)
    return answer.model_dump(by_alias=True, exclude_none=True)
