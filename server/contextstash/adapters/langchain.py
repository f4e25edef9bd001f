"""LangChain: a middleware of `create_agent` that sends each model call what contextstash returns.

    agent = create_agent(model, tools, middleware=[StashMiddleware(stash.session("job-7", window=200_000))])

A session of `open_stash_sync` is for `invoke`, one of `open_stash` for `ainvoke`; the former serves both.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.utils import convert_to_messages, convert_to_openai_messages
from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from contextstash.adapters.parts import Part, by_message, natives, parts_sent, reported, text_of
from contextstash.library.open_stash import BlockingSession
from contextstash.library.replies import as_natives
from contextstash.library.request import ContextRequest
from contextstash.library.session import LibrarySession
from contextstash_storage.errors import BadInputError
from contextstash_storage.records import Native

TOOLS_FORM = "openai-chat"
"""In which form the definitions of our tools are made LangChain's."""

MAX_TOKENS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
"""Under which names model settings and models hold the most tokens of a reply."""

NOT_SENT = ("index", "status", "toolset_name", "caller")
"""Keys of content blocks that LangChain keeps and does not send."""

IN_KWARGS = -1
"""The place of reasoning that LangChain keeps beside the content."""

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
        self._session = session
        offered = session.tools(TOOLS_FORM) if retrieval else []
        self.tools = [_tool(session, definition["function"]) for definition in offered]

    def wrap_model_call(self, request: Request, handler: Callable[[Request], Response]) -> Response:
        """See `AgentMiddleware`."""
        session = self._session
        if not isinstance(session, BlockingSession):
            raise BadInputError("This session is asynchronous: use ainvoke, or a session of open_stash_sync.")
        given = _Given(request)
        session.speak(given.form)
        sent = session.request(given.natives, **_beside(request))
        try:
            response = handler(given.override(sent))
        except Exception as error:
            sent = session.recover(error)  # raises the error again if it is about something else
            response = handler(given.override(sent))
        session.reply(given.reply(response), usage=_usage(response.result, given.form))
        return response

    async def awrap_model_call(self, request: Request, handler: Callable[[Request], Awaitable[Response]]) -> Response:
        """See `AgentMiddleware`."""
        session = self._session
        given = _Given(request)
        session.speak(given.form)
        sent = await _awaited(session, session.request, given.natives, **_beside(request))
        try:
            response = await handler(given.override(sent))
        except Exception as error:
            sent = await _awaited(session, session.recover, error)
            response = await handler(given.override(sent))
        await _awaited(session, session.reply, given.reply(response), usage=_usage(response.result, given.form))
        return response


async def _awaited(
    session: LibrarySession | BlockingSession, call: Callable[..., Any], *given: Any, **named: Any
) -> Any:
    """The result of a session's method, of either kind."""
    if isinstance(session, BlockingSession):
        return await asyncio.to_thread(call, *given, **named)
    return await call(*given, **named)


class _Given:
    """The messages of a model call in the form of its model's provider."""

    def __init__(self, request: Request) -> None:
        self.form = _form(request.model)
        self._request = request
        self._parts = _parts(request.messages, self.form)
        self.natives = natives(self._parts, self.form)

    def override(self, sent: ContextRequest) -> Request:
        """The model call with what is sent: LangChain's own messages, but for what left them or was shortened."""
        sent.check_fits()
        own = self._request.messages
        parts_of = Counter(part.source[0] for part in self._parts if part.source)
        messages: list[Any] = []
        for place, parts in by_message(parts_sent(sent.messages, self._parts, self.form)):
            if place is not None:
                messages.append(_kept(own[place], parts, len(parts) == parts_of[place]))
            elif parts[0].role not in ("system", "developer"):  # LangChain adds these
                messages.append(_added(parts[0], self.form))
        if self.form == "anthropic":
            messages = _joined(messages)
        return self._request.override(messages=messages)

    def reply(self, response: Response) -> list[Native]:
        """The model's reply in the same form."""
        return natives(_parts(response.result, self.form), self.form)


def _form(model: object) -> str:
    """The form of a model's provider. ChatOpenAI decides by its own arguments which of OpenAI's APIs it uses."""
    names = {each.__name__ for each in type(model).__mro__}
    if "ChatAnthropic" in names:
        return "anthropic"
    uses_responses = getattr(model, "_use_responses_api", None)
    if "BaseChatOpenAI" in names and uses_responses is not None:
        arguments = getattr(model, "_default_params", {})
        return "openai-responses" if uses_responses(arguments) else "openai-chat"
    return "openai-chat"


def _parts(messages: Sequence[BaseMessage], form: str) -> list[Part]:
    """The parts of LangChain's messages; a part's place in its message is that of its content block, or of its call
    behind these."""
    if form == "openai-chat":
        converted = [_with_calls_once(native) for native in convert_to_openai_messages(list(messages))]
        return [Part(native["role"], native, (at, 0)) for at, native in enumerate(as_natives(converted))]
    taken_apart = _anthropic_blocks if form == "anthropic" else _responses_items
    return [
        Part(role, block if form == "anthropic" else as_natives([block])[0], (at, place))
        for at, message in enumerate(messages)
        for place, role, block in taken_apart(message)
    ]


def _content(message: BaseMessage) -> list[tuple[int, dict[str, Any]]]:
    """The content blocks of a message with their places."""
    content = message.content
    if isinstance(content, str):
        return [(0, {"type": "text", "text": content})] if content else []
    return [(at, {"type": "text", "text": each} if isinstance(each, str) else each) for at, each in enumerate(content)]


Placed: TypeAlias = tuple[int, str, Native]


def _anthropic_blocks(message: BaseMessage) -> list[Placed]:
    if isinstance(message, ToolMessage):
        block = {"type": "tool_result", "tool_use_id": message.tool_call_id, "content": message.content}
        return [(0, "user", block | ({"is_error": True} if message.status == "error" else {}))]
    if not isinstance(message, AIMessage):
        return [(at, "user", block) for at, block in _content(message)]
    inputs = {str(call["id"]): call for call in message.tool_calls}
    blocks: list[Placed] = []
    for at, block in _content(message):
        call = inputs.pop(str(block["id"]), None) if block.get("type") == "tool_use" else None
        if call is not None:
            blocks.append((at, "assistant", _tool_use(call)))
        elif block.get("type") != "text" or block["text"]:
            kept = {key: each for key, each in block.items() if key not in NOT_SENT and each is not None}
            blocks.append((at, "assistant", kept))
    behind = len(message.content)
    return [*blocks, *((behind + at, "assistant", _tool_use(call)) for at, call in enumerate(inputs.values()))]


def _tool_use(call: Any) -> Native:
    return {"type": "tool_use", "id": call["id"], "name": call["name"], "input": call["args"]}


def _responses_items(message: BaseMessage) -> list[Placed]:
    if isinstance(message, ToolMessage):
        text = message.content if isinstance(message.content, str) else message.text
        return [(0, "user", {"type": "function_call_output", "call_id": message.tool_call_id, "output": text})]
    if not isinstance(message, AIMessage):
        content = [
            block | {"type": "input_text"} if block["type"] == "text" else block for _, block in _content(message)
        ]
        return [(0, "user", {"type": "message", "role": "user", "content": content})]
    items: list[Placed] = []
    if reasoning := message.additional_kwargs.get("reasoning"):
        items.append((IN_KWARGS, "assistant", reasoning))
    calls = {str(call["id"]): call for call in message.tool_calls}
    for at, block in _content(message):
        if block.get("type") == "text":
            said = {"type": "output_text", "text": block["text"], "annotations": block.get("annotations") or []}
            items.append((at, "assistant", {"type": "message", "role": "assistant", "content": [said]}))
        else:
            calls.pop(str(block.get("call_id")), None)
            kept = {key: each for key, each in block.items() if key not in NOT_SENT and each is not None}
            items.append((at, "assistant", kept))
    behind = len(message.content)
    for at, call in enumerate(calls.values()):
        item = {"type": "function_call", "call_id": call["id"], "name": call["name"]}
        items.append((behind + at, "assistant", {**item, "arguments": json.dumps(call["args"])}))
    return items


def _with_calls_once(native: Native) -> Native:
    """The message without the calls in its content: over the Responses API LangChain's messages hold them there too,
    in addition to `tool_calls`."""
    content = native.get("content")
    if not native.get("tool_calls") or not isinstance(content, list):
        return native
    return {**native, "content": [part for part in content if part.get("type") not in CALLS_IN_CONTENT] or None}


def _kept(message: BaseMessage, parts: Sequence[Part], whole: bool) -> BaseMessage:
    """A message with the parts that are sent: itself if these are all of it, unchanged."""
    if whole and not any(part.changed for part in parts):
        return message
    if isinstance(message, ToolMessage):
        block = parts[0].block
        return message.model_copy(update={"content": block.get("output", block.get("content"))})
    sent = {part.source[1]: part for part in parts if part.source}
    update: dict[str, Any] = {}
    if isinstance(message.content, list):
        content = [(sent[at], block) for at, block in enumerate(message.content) if at in sent]
        update["content"] = [part.block if part.changed and "call_id" in part.block else own for part, own in content]
    if isinstance(message, AIMessage):
        ids = {part.block.get("id") for part in parts} | {part.block.get("call_id") for part in parts}
        update["tool_calls"] = [call for call in message.tool_calls if call["id"] in ids]
    if IN_KWARGS not in sent:
        update["additional_kwargs"] = {k: v for k, v in message.additional_kwargs.items() if k != "reasoning"}
    return message.model_copy(update=update)


def _joined(messages: Sequence[Any]) -> list[Any]:
    """Neighbouring messages of the assistant as one: LangChain joins those of the user alone."""
    joined: list[Any] = []
    for message in messages:
        if joined and isinstance(message, AIMessage) and isinstance(joined[-1], AIMessage):
            blocks = [block for each in (joined[-1], message) for _, block in _content(each)]
            calls = [*joined[-1].tool_calls, *message.tool_calls]
            joined[-1] = joined[-1].model_copy(update={"content": blocks, "tool_calls": calls})
        else:
            joined.append(message)
    return joined


def _added(part: Part, form: str) -> BaseMessage:
    """A message that contextstash added, such as a summary."""
    if form == "openai-chat":
        return convert_to_messages([part.block])[0]
    return (AIMessage if part.role == "assistant" else HumanMessage)(content=text_of(part.block))


def _beside(request: Request) -> dict[str, Any]:
    """System prompt and tools of a model call, and the most tokens that its reply may take."""
    system = request.system_message
    limits = (request.model_settings.get(name) or getattr(request.model, name, None) for name in MAX_TOKENS)
    return {
        "system": None if system is None else convert_to_openai_messages([system])[0]["content"],
        "tools": [convert_to_openai_tool(tool) for tool in request.tools],
        "max_tokens": next((limit for limit in limits if isinstance(limit, int)), None),
    }


def _usage(messages: Sequence[BaseMessage], form: str) -> dict[str, Any] | None:
    """The usage that the model reported, in the form of its provider. LangChain counts cached tokens as input."""
    found = next(
        (each.usage_metadata for each in messages if isinstance(each, AIMessage) and each.usage_metadata), None
    )
    if found is None:
        return None
    details = found.get("input_token_details") or {}
    return reported(
        form,
        given=found["input_tokens"],
        written=found["output_tokens"],
        cache_read=details.get("cache_read") or 0,
        cache_written=details.get("cache_creation") or 0,
    )


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
