"""pydantic-ai: a capability that sends each model request what contextstash returns.

    agent = Agent(model, capabilities=[StashHistory(stash.session("job-7", window=200_000))])

A history processor replaces the agent's own history by what it returns; this changes the request alone, so that
`all_messages()` stays whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

from pydantic_ai import RunContext, Tool
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import RetryModelRequest
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.toolsets import FunctionToolset

from contextstash.adapters.parts import Part, by_message, natives, parts_sent, text_of
from contextstash.library.replies import as_natives
from contextstash.library.session import LibrarySession
from contextstash_storage.records import Native

TOOLS_FORM = "openai-chat"
"""In which form the definitions of tools are pydantic-ai's."""

FORMS = {"AnthropicModel": "anthropic", "OpenAIResponsesModel": "openai-responses"}
"""Models whose provider binds reasoning to what stands before it; the others are recorded as Chat Completions."""


WHOLE = -1
"""The place of a reply that is one message in its form."""


class StashHistory(AbstractCapability[Any]):
    """Records the conversation, keeps each model request within the window, and offers the model the tools to read
    again what left it."""

    def __init__(self, session: LibrarySession, *, retrieval: bool = True) -> None:
        """`retrieval` is whether the model gets the two tools of contextstash."""
        self._session = session
        self._retrieval = retrieval

    async def prepare_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """The request with what is sent; pydantic-ai's own messages if they are unchanged."""
        given = list(request_context.messages)
        form = _form(request_context.model)
        self._session.speak(form)
        system, parts = _system(given), _parts(given, form)
        parameters = request_context.model_request_parameters
        instructions = [*(part.content for part in parameters.instruction_parts or ()), *(text for _, text in system)]
        request = await self._session.request(
            natives(parts, form),
            system="\n\n".join(instructions) or None,
            tools=[_definition(tool) for tool in (*parameters.function_tools, *parameters.output_tools)],
            max_tokens=(request_context.model_settings or {}).get("max_tokens"),
        )
        request.check_fits()
        sent = [part for part in parts_sent(request.messages, parts, form) if part.role not in ("system", "developer")]
        kept = [Part("system", {}, source) for source, _ in system]
        messages = _messages(given, [*kept, *sent])
        return replace(request_context, messages=_joined(messages) if form == "anthropic" else messages)

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Record the reply and its usage."""
        form = _form(request_context.model)
        await self._session.reply(natives(_parts([response], form), form), usage=_usage(response))
        return response

    async def on_model_request_error(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, error: Exception
    ) -> ModelResponse:
        """Ask again with less if the request was too long; any other error is raised again."""
        await self._session.recover(error)
        raise RetryModelRequest from error

    def get_toolset(self) -> FunctionToolset[Any] | None:
        """The tools to read again what left the window."""
        if not self._retrieval:
            return None
        return FunctionToolset([_tool(self._session, each["function"]) for each in self._session.tools(TOOLS_FORM)])


def _form(model: Any) -> str:
    """The form of a model's provider; of a model within another, as for instrumentation, that of the inner one."""
    while (inner := getattr(model, "wrapped", None)) is not None:
        model = inner
    return next((FORMS[each.__name__] for each in type(model).__mro__ if each.__name__ in FORMS), "openai-chat")


def _system(messages: Sequence[ModelMessage]) -> list[tuple[tuple[int, int], str]]:
    """The system prompts among the messages, with their places: the models send them apart."""
    return [
        ((at, place), part.content)
        for at, message in enumerate(messages)
        for place, part in enumerate(message.parts)
        if isinstance(part, SystemPromptPart)
    ]


def _parts(messages: Sequence[ModelMessage], form: str) -> list[Part]:
    """The messages in the form of the provider, but for system prompts."""
    if form == "openai-chat":
        return list(_chat_parts(messages))
    blocks = _anthropic_block if form == "anthropic" else _responses_item
    found = []
    for at, message in enumerate(messages):
        role = "assistant" if isinstance(message, ModelResponse) else "user"
        for place, part in enumerate(message.parts):
            block = blocks(part)
            if block is not None:
                found.append(Part(role, block if form == "anthropic" else as_natives([block])[0], (at, place)))
    return found


def _chat_parts(messages: Sequence[ModelMessage]) -> Iterator[Part]:
    for at, message in enumerate(messages):
        if isinstance(message, ModelResponse):
            yield Part("assistant", as_natives([_said(message)])[0], (at, WHOLE))
            continue
        for place, part in enumerate(message.parts):
            asked = _asked(part)
            if asked is not None:
                yield Part(asked["role"], asked, (at, place))


def _anthropic_block(part: object) -> Native | None:
    if isinstance(part, ThinkingPart):
        if part.id == "redacted_thinking":
            return {"type": "redacted_thinking", "data": part.signature}
        return {"type": "thinking", "thinking": part.content, "signature": part.signature}
    if isinstance(part, ToolCallPart):
        return {"type": "tool_use", "id": part.tool_call_id, "name": part.tool_name, "input": part.args_as_dict()}
    asked = _asked(part)
    if asked is None:
        return {"type": "text", "text": part.content} if isinstance(part, TextPart) and part.content else None
    if asked["role"] == "tool":
        return {"type": "tool_result", "tool_use_id": asked["tool_call_id"], "content": asked["content"]}
    return {"type": "text", "text": text_of(asked)}


def _responses_item(part: object) -> Native | None:
    if isinstance(part, ThinkingPart):
        summary = [{"type": "summary_text", "text": part.content}] if part.content else []
        return {"type": "reasoning", "id": part.id, "summary": summary, "encrypted_content": part.signature}
    if isinstance(part, ToolCallPart):
        call = {"type": "function_call", "call_id": part.tool_call_id, "name": part.tool_name}
        return {**call, "arguments": part.args_as_json_str(), **({"id": part.id} if part.id else {})}
    if isinstance(part, TextPart):
        said = [{"type": "output_text", "text": part.content, "annotations": []}]
        return {"type": "message", "role": "assistant", "content": said}
    asked = _asked(part)
    if asked is None:
        return None
    if asked["role"] == "tool":
        return {"type": "function_call_output", "call_id": asked["tool_call_id"], "output": asked["content"]}
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text_of(asked)}]}


def _said(message: ModelResponse) -> Native:
    """A reply in the form of Chat Completions."""
    texts = [part.content for part in message.parts if isinstance(part, TextPart)]
    thoughts = [part.content for part in message.parts if isinstance(part, ThinkingPart)]
    calls = [
        {
            "id": part.tool_call_id,
            "type": "function",
            "function": {"name": part.tool_name, "arguments": part.args_as_json_str()},
        }
        for part in message.parts
        if isinstance(part, ToolCallPart)
    ]
    native: Native = {"role": "assistant", "content": "\n\n".join(filter(None, texts)) or ("" if not calls else None)}
    if thoughts := list(filter(None, thoughts)):
        native["reasoning_content"] = "\n\n".join(thoughts)
    return {**native, "tool_calls": calls} if calls else native


def _asked(part: object) -> Native | None:
    """A part of a request in the form of Chat Completions; None if it says nothing, or is a system prompt."""
    if isinstance(part, UserPromptPart):
        content = part.content
        return {"role": "user", "content": content if isinstance(content, str) else [_piece(each) for each in content]}
    if isinstance(part, ToolReturnPart):
        return {"role": "tool", "tool_call_id": part.tool_call_id, "content": part.model_response_str()}
    if isinstance(part, RetryPromptPart):
        if part.tool_name is None:
            return {"role": "user", "content": part.model_response()}
        return {"role": "tool", "tool_call_id": part.tool_call_id, "content": part.model_response()}
    return None


def _piece(content: object) -> Native:
    """A piece of what the user said; of anything but text only the kind is recorded."""
    if isinstance(content, str):
        return {"type": "text", "text": content}
    kind = getattr(content, "kind", "")
    media = str(getattr(content, "media_type", ""))
    if kind == "image-url" or media.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": str(getattr(content, "url", "data:"))}}
    return {"type": "file", "file": {"filename": str(getattr(content, "identifier", kind))}}


def _messages(given: Sequence[ModelMessage], sent: Sequence[Part]) -> list[ModelMessage]:
    """The request as pydantic-ai's messages. A message that is sent whole is the agent's own object."""
    built: list[ModelMessage] = []
    for at, parts in by_message(sent):
        if at is None:
            for added, said in ((text_of(part.block), part.role == "assistant") for part in parts):
                built.append(ModelResponse([TextPart(added)]) if said else ModelRequest([UserPromptPart(added)]))
            continue
        message = given[at]
        own: list[Any] = []
        for part in parts:
            place = part.source[1] if part.source else WHOLE
            own += list(message.parts) if place == WHOLE else [_kept(message.parts[place], part)]
        is_whole = len(own) == len(message.parts) and all(
            new is old for new, old in zip(own, message.parts, strict=True)
        )
        built.append(message if is_whole else replace(message, parts=cast(Any, own)))
    return built


def _joined(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Neighbouring replies as one, as Anthropic demands."""
    joined: list[ModelMessage] = []
    for message in messages:
        last = joined[-1] if joined else None
        if isinstance(message, ModelResponse) and isinstance(last, ModelResponse):
            joined[-1] = replace(last, parts=[*last.parts, *message.parts])
        else:
            joined.append(message)
    return joined


def _kept(own: Any, part: Part) -> Any:
    """A part of the framework's message, shortened if it was. A call whose reasoning left has no id of the provider."""
    if not part.changed:
        return own
    if isinstance(own, ToolCallPart):
        return replace(own, id=part.block.get("id") if "call_id" in part.block else own.id)
    if isinstance(own, ToolReturnPart | RetryPromptPart):
        shortened: Any = part.block.get("output", part.block.get("content"))
        return replace(own, content=shortened)
    return own


def _definition(tool: Any) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters_json_schema}
    return {"type": "function", "function": function}


def _usage(response: ModelResponse) -> dict[str, Any] | None:
    """The usage that the model reported: pydantic-ai counts cached tokens as input too."""
    usage = response.usage
    if not usage.input_tokens:
        return None
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "cached_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
    }


def _tool(session: LibrarySession, function: Native) -> Tool[Any]:
    name: str = function["name"]

    async def call(**arguments: Any) -> str:
        return str(await session.call_tool(name, arguments))

    return Tool.from_schema(call, name, function["description"], function["parameters"])
