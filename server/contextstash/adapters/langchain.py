"""LangChain: a middleware of `create_agent` that sends each model call what contextstash returns.

    agent = create_agent(model, tools, middleware=[StashMiddleware(stash.session("job-7", window=200_000))])

A session of `open_stash_sync` is for `invoke`, one of `open_stash` for `ainvoke`; the former serves both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.messages.utils import convert_to_messages, convert_to_openai_messages
from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from contextstash.adapters.alignment import align
from contextstash.library.open_stash_sync import BlockingSession
from contextstash.library.replies import as_natives
from contextstash.library.request import ContextRequest
from contextstash.library.session import LibrarySession
from contextstash_storage.errors import BadInputError
from contextstash_storage.records import Native

FORMAT = "openai-chat"
"""LangChain's messages are recorded in this form, whatever the model is."""

MAX_TOKENS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
"""Under which names model settings and models hold the most tokens of a reply."""

CALLS_IN_CONTENT = ("function_call", "custom_tool_call")
"""Types of the content blocks that LangChain repeats in `tool_calls`."""

Request: TypeAlias = ModelRequest[Any]
Response: TypeAlias = ModelResponse[Any]


class StashMiddleware(AgentMiddleware[Any, Any, Any]):
    """Records the conversation, keeps each model call within the window, and offers the model the tools to read again
    what left it. The agent's own state keeps all messages."""

    def __init__(self, session: LibrarySession | BlockingSession, *, retrieval: bool = True) -> None:
        """`retrieval` is whether the model gets the two tools of contextstash."""
        super().__init__()
        session.speak(FORMAT)
        self._session = session
        self.tools = [_tool(session, definition["function"]) for definition in session.tools()] if retrieval else []

    def wrap_model_call(self, request: Request, handler: Callable[[Request], Response]) -> Response:
        """See `AgentMiddleware`."""
        session = self._session
        if not isinstance(session, BlockingSession):
            raise BadInputError("This session is asynchronous: use ainvoke, or a session of open_stash_sync.")
        given = _natives(request.messages)
        sent = session.request(given, **_beside(request))
        try:
            response = handler(_override(request, given, sent))
        except Exception as error:
            sent = session.recover(error)  # raises the error again if it is about something else
            response = handler(_override(request, given, sent))
        session.reply(_natives(response.result), usage=_usage(response.result))
        return response

    async def awrap_model_call(self, request: Request, handler: Callable[[Request], Awaitable[Response]]) -> Response:
        """See `AgentMiddleware`."""
        session = self._session
        given = _natives(request.messages)
        sent = await _awaited(session, session.request, given, **_beside(request))
        try:
            response = await handler(_override(request, given, sent))
        except Exception as error:
            sent = await _awaited(session, session.recover, error)
            response = await handler(_override(request, given, sent))
        await _awaited(session, session.reply, _natives(response.result), usage=_usage(response.result))
        return response


async def _awaited(
    session: LibrarySession | BlockingSession, call: Callable[..., Any], *given: Any, **named: Any
) -> Any:
    """The result of a session's method, of either kind."""
    if isinstance(session, BlockingSession):
        return await asyncio.to_thread(call, *given, **named)
    return await call(*given, **named)


def _natives(messages: Sequence[BaseMessage]) -> list[Native]:
    return as_natives([_with_calls_once(native) for native in convert_to_openai_messages(list(messages))])


def _with_calls_once(native: Native) -> Native:
    """The message without the calls in its content: over the Responses API LangChain's messages hold them there too,
    in addition to `tool_calls`."""
    content = native.get("content")
    if not native.get("tool_calls") or not isinstance(content, list):
        return native
    return {**native, "content": [part for part in content if part.get("type") not in CALLS_IN_CONTENT] or None}


def _beside(request: Request) -> dict[str, Any]:
    """System prompt and tools of a model call, and the most tokens that its reply may take."""
    system = request.system_message
    limits = (request.model_settings.get(name) or getattr(request.model, name, None) for name in MAX_TOKENS)
    return {
        "system": None if system is None else convert_to_openai_messages([system])[0]["content"],
        "tools": [convert_to_openai_tool(tool) for tool in request.tools],
        "max_tokens": next((limit for limit in limits if isinstance(limit, int)), None),
    }


def _override(request: Request, given: Sequence[Native], sent: ContextRequest) -> Request:
    """The model call with what is sent: LangChain's own messages if they are unchanged."""
    sent.check_fits()
    messages: list[Any] = []
    for native, place in zip(sent.messages, align(sent.messages, given), strict=True):
        if native["role"] in ("system", "developer") and place is None:
            continue  # LangChain adds it
        messages.append(request.messages[place] if place is not None else _changed(request.messages, native))
    return request.override(messages=messages)


def _changed(messages: Sequence[BaseMessage], native: Native) -> BaseMessage:
    """A message that was shortened or added; a tool result keeps everything but its content."""
    call_id = native.get("tool_call_id")
    for message in messages if call_id else ():
        if isinstance(message, ToolMessage) and message.tool_call_id == call_id:
            return message.model_copy(update={"content": native["content"]})
    changed: BaseMessage = convert_to_messages([native])[0]
    return changed


def _usage(messages: Sequence[BaseMessage]) -> dict[str, Any] | None:
    """The usage that the model reported, in the form of Chat Completions: both count cached tokens as input."""
    for message in messages:
        if isinstance(message, AIMessage) and message.usage_metadata:
            usage = message.usage_metadata
            details = usage.get("input_token_details") or {}
            return {
                "prompt_tokens": usage["input_tokens"],
                "completion_tokens": usage["output_tokens"],
                "prompt_tokens_details": {"cached_tokens": details.get("cache_read") or 0},
            }
    return None


def _tool(session: LibrarySession | BlockingSession, function: Native) -> BaseTool:
    name: str = function["name"]

    async def call(**arguments: Any) -> str:
        return str(await _awaited(session, session.call_tool, name, arguments))

    def call_sync(**arguments: Any) -> str:
        if not isinstance(session, BlockingSession):
            raise BadInputError("This session is asynchronous: use ainvoke, or a session of open_stash_sync.")
        return str(session.call_tool(name, arguments))

    return StructuredTool.from_function(
        func=call_sync,
        coroutine=call,
        name=name,
        description=function["description"],
        args_schema=function["parameters"],
        infer_schema=False,
    )
