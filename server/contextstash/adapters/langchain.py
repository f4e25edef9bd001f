"""LangChain: a middleware of `create_agent` that sends each model call what contextstash returns.

    agent = create_agent(model, tools, middleware=[StashMiddleware(stash.session("job-7", window=200_000))])

A session of `open_stash_sync` is for `invoke`, one of `open_stash` for `ainvoke`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.utils import convert_to_messages, convert_to_openai_messages
from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from contextstash.adapters.parts import Part, by_message, natives, parts_of, parts_sent, result_id, text_of
from contextstash.library.open_stash import BlockingSession
from contextstash.library.replies import as_natives
from contextstash.library.session import ContextRequest, LibrarySession
from contextstash_storage.errors import BadInputError
from contextstash_storage.records import Native

TOOLS_FORM = "openai-chat"
"""In which form the definitions of our tools are made LangChain's."""

MAX_TOKENS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
"""Under which names model settings and models hold the most tokens of a reply."""

SYSTEM_ROLES = ("system", "developer")

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
        session, given = _of_kind(self._session, BlockingSession), _Given(request)
        session.speak(given.form)
        sent = session.request(given.natives, **_beside(request))
        try:
            response = handler(given.override(sent))
        except Exception as error:  # raised again if it is about something else
            response = handler(given.override(session.recover(error)))
        session.reply(given.reply(response), usage=_usage(response.result))
        return response

    async def awrap_model_call(self, request: Request, handler: Callable[[Request], Awaitable[Response]]) -> Response:
        """See `AgentMiddleware`."""
        session, given = _of_kind(self._session, LibrarySession), _Given(request)
        session.speak(given.form)
        sent = await session.request(given.natives, **_beside(request))
        try:
            response = await handler(given.override(sent))
        except Exception as error:
            response = await handler(given.override(await session.recover(error)))
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
        self.form, _ = _sent(request.model, [HumanMessage("Hello.")])
        self._request = request
        self._parts = _parts(request.messages, request.model, self.form)
        self.natives = natives(self._parts, self.form)

    def override(self, sent: ContextRequest) -> Request:
        """The model call with what is sent: LangChain's own messages, but for what left them or was shortened."""
        sent.check_fits()
        own = self._request.messages
        parts_in = Counter(part.source[0] for part in self._parts if part.source)
        messages: list[Any] = []
        for place, parts in by_message(parts_sent(sent.messages, self._parts, self.form)):
            if place is not None:
                is_whole = len(parts) == parts_in[place] and not any(part.changed for part in parts)
                messages.append(own[place] if is_whole else _rebuilt(own[place], parts))
            else:  # LangChain adds the system prompt
                messages += convert_to_messages([_added(each) for each in parts if each.role not in SYSTEM_ROLES])
        return self._request.override(messages=messages)

    def reply(self, response: Response) -> list[Native]:
        """The model's reply in the same form."""
        return natives(_parts(response.result, self._request.model, self.form), self.form)


def _sent(model: Any, messages: Sequence[BaseMessage]) -> tuple[str, list[Native]]:
    """The form of a model's provider, and these messages in it as the model's own class sends them: ChatOpenAI decides
    by its own arguments which of OpenAI's APIs it uses. Those of a class without a converter are Chat Completions.
    LangChain has no public name for it."""
    convert = getattr(model, "_get_request_payload", None)
    payload = convert([*messages]) if convert else {"messages": convert_to_openai_messages([*messages])}
    if "input" in payload:
        return "openai-responses", as_natives(payload["input"])
    is_anthropic = "ChatAnthropic" in {each.__name__ for each in type(model).__mro__}
    return "anthropic" if is_anthropic else "openai-chat", as_natives(payload["messages"])


def _parts(messages: Sequence[BaseMessage], model: Any, form: str) -> list[Part]:
    """The parts of LangChain's messages, each with the place of its message, and its own in what that is sent as."""
    parts = []
    for at, message in enumerate(messages):
        # Anthropic has the system prompt beside the list: what stands in it is recorded as a text of the user.
        is_beside = form == "anthropic" and isinstance(message, SystemMessage)
        _, sent = _sent(model, [HumanMessage(message.content) if is_beside else message])
        parts += [replace(part, source=(at, place)) for place, part in enumerate(parts_of(sent, form))]
    return parts


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


def _added(part: Part) -> Native:
    """A message that contextstash added: a summary, a notice, or the result of a call that has none."""
    if (call_id := result_id(part.block)) is not None:
        return {"role": "tool", "tool_call_id": call_id, "content": text_of(part.block)}
    return {"role": part.role, "content": text_of(part.block)}


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
