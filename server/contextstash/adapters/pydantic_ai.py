"""pydantic-ai: a capability that sends each model request what contextstash returns.

    agent = Agent(model, capabilities=[StashHistory(stash.session("job-7", window=200_000))])

A history processor replaces the agent's own history by what it returns; this changes the request alone, so that
`all_messages()` stays whole.
"""

from __future__ import annotations

from collections.abc import Sequence
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

from contextstash.adapters.alignment import align
from contextstash.library.replies import as_natives
from contextstash.library.session import LibrarySession
from contextstash_storage.records import Native

FORMAT = "openai-chat"
"""pydantic-ai's messages are recorded in this form, whatever the model is."""

Source = tuple[int, int | None]
"""The origin of a recorded message: the position of the framework's message, and of the part in a request."""


class StashHistory(AbstractCapability[Any]):
    """Records the conversation, keeps each model request within the window, and offers the model the tools to read
    again what left it."""

    def __init__(self, session: LibrarySession, *, retrieval: bool = True) -> None:
        """`retrieval` is whether the model gets the two tools of contextstash."""
        session.speak(FORMAT)
        self._session = session
        self._retrieval = retrieval

    async def prepare_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """The request with what is sent; pydantic-ai's own messages if they are unchanged."""
        given = list(request_context.messages)
        natives, sources = _natives(given)
        parameters = request_context.model_request_parameters
        request = await self._session.request(
            natives,
            system="\n\n".join(part.content for part in parameters.instruction_parts or ()) or None,
            tools=[_definition(tool) for tool in (*parameters.function_tools, *parameters.output_tools)],
            max_tokens=(request_context.model_settings or {}).get("max_tokens"),
        )
        request.check_fits()
        sent = [native for native in request.messages if native["role"] != "system" or native in natives]
        return replace(request_context, messages=_messages(given, natives, sources, sent))

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Record the reply and its usage."""
        await self._session.reply(_natives([response])[0], usage=_usage(response))
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
        return FunctionToolset([_tool(self._session, each["function"]) for each in self._session.tools(FORMAT)])


def _natives(messages: Sequence[ModelMessage]) -> tuple[list[Native], list[Source]]:
    """The messages in the form of Chat Completions, and where each comes from."""
    natives: list[Native] = []
    sources: list[Source] = []
    for place, message in enumerate(messages):
        if isinstance(message, ModelResponse):
            natives.append(_said(message))
            sources.append((place, None))
            continue
        for part_place, part in enumerate(message.parts):
            if (native := _asked(part)) is not None:
                natives.append(native)
                sources.append((place, part_place))
    return as_natives(natives), sources


def _said(message: ModelResponse) -> Native:
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
    """A part of a request; None if it says nothing."""
    if isinstance(part, SystemPromptPart):
        return {"role": "system", "content": part.content}
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


def _messages(
    given: Sequence[ModelMessage], natives: Sequence[Native], sources: Sequence[Source], sent: Sequence[Native]
) -> list[ModelMessage]:
    """The request as pydantic-ai's messages. A message that is sent whole is the agent's own object."""
    calls = {native["tool_call_id"]: sources[place] for place, native in enumerate(natives) if "tool_call_id" in native}
    built: list[tuple[int | None, list[Any]]] = []
    for native, place in zip(sent, align(sent, natives), strict=True):
        source = sources[place] if place is not None else calls.get(native.get("tool_call_id"))
        if source is None:
            built.append((None, [UserPromptPart(content=_text_of(native))]))
            continue
        message = given[source[0]]
        parts = list(message.parts) if source[1] is None else [message.parts[source[1]]]
        if place is None:
            parts = [replace(parts[0], content=native["content"])]
        if built and built[-1][0] == source[0]:
            built[-1][1].extend(parts)
        else:
            built.append((source[0], parts))
    return [_message(given, place, parts) for place, parts in built]


def _message(given: Sequence[ModelMessage], place: int | None, parts: Any) -> ModelMessage:
    if place is None:
        return ModelRequest(parts=parts)
    message = given[place]
    if len(parts) == len(message.parts) and all(new is old for new, old in zip(parts, message.parts, strict=True)):
        return message
    changed: ModelMessage = replace(message, parts=cast(Any, parts))
    return changed


def _text_of(native: Native) -> str:
    content = native.get("content")
    if isinstance(content, str):
        return content
    return "\n\n".join(str(part.get("text", "")) for part in content or () if isinstance(part, dict))


def _definition(tool: Any) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters_json_schema}
    return {"type": "function", "function": function}


def _usage(response: ModelResponse) -> dict[str, Any] | None:
    """The usage in the form of Chat Completions: pydantic-ai counts cached tokens as input too."""
    usage = response.usage
    if not usage.input_tokens:
        return None
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens},
    }


def _tool(session: LibrarySession, function: Native) -> Tool[Any]:
    name: str = function["name"]

    async def call(**arguments: Any) -> str:
        return str(await session.call_tool(name, arguments))

    return Tool.from_schema(call, name, function["description"], function["parameters"])
