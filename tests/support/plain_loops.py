"""Agent loops as a user writes them with each provider's SDK, around `open_stash`."""

from __future__ import annotations

import json
from typing import Any

from anthropic import AsyncAnthropic
from openai import AsyncOpenAI, BadRequestError
from openai.types.chat import ChatCompletionMessageFunctionToolCall

from contextstash.library.session import ContextRequest, LibrarySession
from tests.support.strict_provider import part_of_a_log

SYSTEM = "You read logs, part by part. " * 40
PARAMETERS = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
READ_PART = "read_part"


def asked(request: ContextRequest, messages: str = "messages") -> dict[str, Any]:
    """The arguments of the SDK's call."""
    return {messages: request.messages, **request.options}


async def anthropic_loop(client: AsyncAnthropic, session: LibrarySession, messages: list[Any]) -> str:
    """Runs until the model answers without a tool call. Messages are appended as the SDK's own objects."""
    tools = [{"name": READ_PART, "description": "Read a part.", "input_schema": PARAMETERS}]
    while True:
        request = await session.request(messages, system=SYSTEM, tools=tools, max_tokens=2_000)
        assert request.fits, request.reason
        reply = await client.messages.create(**asked(request))
        await session.reply(reply)
        messages.append({"role": "assistant", "content": reply.content})
        calls = [block for block in reply.content if block.type == "tool_use"]
        if not calls:
            return "".join(block.text for block in reply.content if block.type == "text")
        messages.append(
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": call.id, "content": part_of_a_log(int(str(call.input["n"])))}
                    for call in calls
                ],
            }
        )


async def openai_chat_loop(client: AsyncOpenAI, session: LibrarySession, messages: list[Any]) -> str:
    """The same with Chat Completions."""
    function = {"name": READ_PART, "description": "Read a part.", "parameters": PARAMETERS}
    while True:
        request = await session.request(
            messages, system=SYSTEM, tools=[{"type": "function", "function": function}], max_tokens=2_000
        )
        assert request.fits, request.reason
        try:
            reply = await client.chat.completions.create(**asked(request))
        except BadRequestError as error:
            request = await session.recover(error)
            reply = await client.chat.completions.create(**asked(request))
        await session.reply(reply)
        message = reply.choices[0].message
        messages.append(message)
        if not message.tool_calls:
            return message.content or ""
        for call in message.tool_calls:
            assert isinstance(call, ChatCompletionMessageFunctionToolCall)
            number = json.loads(call.function.arguments)["n"]
            messages.append({"role": "tool", "tool_call_id": call.id, "content": part_of_a_log(number)})


async def openai_responses_loop(client: AsyncOpenAI, session: LibrarySession, messages: list[Any]) -> str:
    """The same with Responses."""
    tools = [{"type": "function", "name": READ_PART, "description": "Read a part.", "parameters": PARAMETERS}]
    while True:
        request = await session.request(messages, system=SYSTEM, tools=tools, max_tokens=2_000)
        assert request.fits, request.reason
        reply = await client.responses.create(**asked(request, "input"))
        messages += await session.reply(reply)
        calls = [item for item in reply.output if item.type == "function_call"]
        if not calls:
            return str(reply.output_text)
        for call in calls:
            output = part_of_a_log(json.loads(call.arguments)["n"])
            messages.append({"type": "function_call_output", "call_id": call.call_id, "output": output})


async def run_loop(fmt: str, url: str, session: LibrarySession, messages: list[Any]) -> str:
    """Runs a format's loop with the provider's SDK; returns the last reply."""
    if fmt == "anthropic":
        async with AsyncAnthropic(base_url=url, api_key="test", max_retries=0) as client:
            return await anthropic_loop(client, session, messages)
    loop = openai_chat_loop if fmt == "openai-chat" else openai_responses_loop
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="test", max_retries=0) as openai:
        return await loop(openai, session, messages)


MODELS = {"anthropic": "claude-opus-4-5", "openai-chat": "gpt-5.4", "openai-responses": "gpt-5.4"}
"""A model for the loop of each format."""
