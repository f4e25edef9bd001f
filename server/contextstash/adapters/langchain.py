"""LangChain: a middleware of `create_agent` that sends each model call what contextstash returns.

    agent = create_agent(model, tools, middleware=[StashMiddleware(stash.session("job-7", window=200_000))])

A session of `open_stash_sync` is for `invoke`, one of `open_stash` for `ainvoke`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias, TypeVar

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.utils import convert_to_messages, convert_to_openai_messages
from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from contextstash.adapters.parts import Part, by_message, natives, parts_sent, text_of
from contextstash.library.open_stash import BlockingSession
from contextstash.library.replies import as_natives
from contextstash.library.session import ContextRequest, LibrarySession
from contextstash_storage.errors import BadInputError
from contextstash_storage.records import Native

TOOLS_FORM = "openai-chat"
"""In which form the definitions of our tools are made LangChain's."""

MAX_TOKENS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
"""Under which names model settings and models hold the most tokens of a reply."""

Request: TypeAlias = ModelRequest[Any]
Response: TypeAlias = ModelResponse[Any]
Kind = TypeVar("Kind", LibrarySession, BlockingSession)


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
        session = _of_kind(self._session, BlockingSession)
        given = _Given(request)
        session.speak(given.form)
        sent = session.request(given.natives, **_beside(request))
        try:
            response = handler(given.override(sent))
        except Exception as error:
            sent = session.recover(error)  # raises the error again if it is about something else
            response = handler(given.override(sent))
        session.reply(given.reply(response), usage=_usage(response.result))
        return response

    async def awrap_model_call(self, request: Request, handler: Callable[[Request], Awaitable[Response]]) -> Response:
        """See `AgentMiddleware`."""
        session = _of_kind(self._session, LibrarySession)
        given = _Given(request)
        session.speak(given.form)
        sent = await session.request(given.natives, **_beside(request))
        try:
            response = await handler(given.override(sent))
        except Exception as error:
            sent = await session.recover(error)
            response = await handler(given.override(sent))
        await session.reply(given.reply(response), usage=_usage(response.result))
        return response


def _of_kind(session: LibrarySession | BlockingSession, kind: type[Kind]) -> Kind:
    """The session, if it is of this kind. Raises BadInputError."""
    if not isinstance(session, kind):
        raise BadInputError("A session of open_stash_sync is for invoke, one of open_stash for ainvoke.")
    return session


class _Given:
    """The messages of a model call in the form of its model's provider."""

    def __init__(self, request: Request) -> None:
        self.form = _form(request.model)
        self._request = request
        self._parts = _parts(request.messages, request.model, self.form)
        self.natives = natives(self._parts, self.form)

    def override(self, sent: ContextRequest) -> Request:
        """The model call with what is sent: LangChain's own messages, but for what left them or was shortened."""
        sent.check_fits()
        own = self._request.messages
        parts_of = Counter(part.source[0] for part in self._parts if part.source)
        messages: list[Any] = []
        for place, parts in by_message(parts_sent(sent.messages, self._parts, self.form)):
            if place is not None:
                is_whole = len(parts) == parts_of[place] and not any(part.changed for part in parts)
                messages.append(own[place] if is_whole else _rebuilt(own[place], parts))
            elif parts[0].role not in ("system", "developer"):  # LangChain adds these
                messages.append(_added(parts[0], self.form))
        if self.form == "anthropic":
            messages = _joined(messages)
        return self._request.override(messages=messages)

    def reply(self, response: Response) -> list[Native]:
        """The model's reply in the same form."""
        return natives(_parts(response.result, self._request.model, self.form), self.form)


def _payload(model: Any, messages: Sequence[BaseMessage]) -> dict[str, Any]:
    """These messages as the model's own class sends them; of a class without a converter as Chat Completions. LangChain
    has no public name for it."""
    convert = getattr(model, "_get_request_payload", None)
    if convert is None:
        return {"messages": convert_to_openai_messages(list(messages))}
    payload: dict[str, Any] = convert(list(messages))
    return payload


def _form(model: Any) -> str:
    """The form of a model's provider. ChatOpenAI decides by its own arguments which of OpenAI's APIs it uses."""
    if "ChatAnthropic" in {each.__name__ for each in type(model).__mro__}:
        return "anthropic"
    return "openai-responses" if "input" in _payload(model, [HumanMessage("Hello.")]) else "openai-chat"


def _parts(messages: Sequence[BaseMessage], model: Any, form: str) -> list[Part]:
    """The parts of LangChain's messages, each with the place of its message, and its own in what that is sent as."""
    parts = []
    for at, message in enumerate(messages):
        # Anthropic has the system prompt beside the list: what stands in it is recorded as a text of the user.
        is_beside = form == "anthropic" and isinstance(message, SystemMessage)
        payload = _payload(model, [HumanMessage(message.content) if is_beside else message])
        for native in as_natives(payload["input"] if "input" in payload else payload["messages"]):
            blocks = _blocks(native["content"]) if form == "anthropic" else [native]
            role = str(native.get("role", "assistant"))
            parts += [Part(role, block, (at, place)) for place, block in enumerate(blocks)]
    return parts


def _blocks(content: Any) -> list[Any]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return [{"type": "text", "text": each} if isinstance(each, str) else each for each in content]


def _rebuilt(message: BaseMessage, parts: Sequence[Part]) -> BaseMessage:
    """A message with the parts that are sent, if they are not all of it, or were shortened."""
    if isinstance(message, ToolMessage):
        block = parts[0].block
        return message.model_copy(update={"content": block.get("output", block.get("content"))})
    content: list[Any] = []
    for block in (part.block for part in parts):
        said = block.get("content") if block.get("type") == "message" else None
        content += [block] if said is None else [{**each, "type": "text"} for each in said]
    ids = {block.get(name) for block in content for name in ("id", "call_id")}
    update: dict[str, Any] = {"content": content, "response_metadata": {}, "additional_kwargs": {}}
    if isinstance(message, AIMessage):
        update["tool_calls"] = [call for call in message.tool_calls if call["id"] in ids]
    return message.model_copy(update=update)


def _joined(messages: Sequence[Any]) -> list[Any]:
    """Neighbouring messages of the assistant as one: LangChain joins those of the user alone."""
    joined: list[Any] = []
    for message in messages:
        if joined and isinstance(message, AIMessage) and isinstance(joined[-1], AIMessage):
            blocks = [*_blocks(joined[-1].content), *_blocks(message.content)]
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


def _usage(messages: Sequence[BaseMessage]) -> dict[str, Any] | None:
    """The usage that the model reported. LangChain counts cached tokens as input."""
    found = next(
        (each.usage_metadata for each in messages if isinstance(each, AIMessage) and each.usage_metadata), None
    )
    if found is None:
        return None
    details = found.get("input_token_details") or {}
    return {
        "prompt_tokens": found["input_tokens"],
        "completion_tokens": found["output_tokens"],
        "cached_tokens": details.get("cache_read") or 0,
        "cache_write_tokens": details.get("cache_creation") or 0,
    }


def _tool(session: LibrarySession | BlockingSession, function: Native) -> BaseTool:
    name: str = function["name"]

    async def call(**arguments: Any) -> str:
        return str(await _of_kind(session, LibrarySession).call_tool(name, arguments))

    def call_sync(**arguments: Any) -> str:
        return str(_of_kind(session, BlockingSession).call_tool(name, arguments))

    return StructuredTool.from_function(
        func=call_sync,
        coroutine=call,
        name=name,
        description=function["description"],
        args_schema=function["parameters"],
        infer_schema=False,
    )
