"""OpenAI Agents SDK: what a run sends to the model, and its usage.

    stashed = StashRun(stash.session("job-7", window=200_000))
    await Runner.run(agent, "…", hooks=stashed, run_config=RunConfig(call_model_input_filter=stashed.filter))

The SDK's own Session keeps the items between runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agents import Agent, FunctionTool, ModelResponse, RunContextWrapper, RunHooks
from agents.run import CallModelData, ModelInputData

from contextstash.library.session import LibrarySession
from contextstash_storage.records import Native

FORMAT = "openai-responses"
"""The SDK's items are those of Responses, also for models that it calls by Chat Completions."""


class StashRun(RunHooks[Any]):
    """Keeps each model call of a run within the window (`filter`), and books the usage that comes back (as `hooks`).
    One for each conversation."""

    def __init__(self, session: LibrarySession) -> None:
        session.speak(FORMAT)
        self._session = session

    async def filter(self, data: CallModelData[Any]) -> ModelInputData:
        """For `RunConfig.call_model_input_filter`."""
        given, agent = data.model_data, data.agent
        request = await self._session.request(
            given.input,
            system=given.instructions,
            tools=_definitions(agent.tools),
            max_tokens=agent.model_settings.max_tokens,
        )
        request.check_fits()
        items: list[Any] = request.messages
        return ModelInputData(input=items, instructions=given.instructions)

    async def on_llm_end(self, context: RunContextWrapper[Any], agent: Agent[Any], response: ModelResponse) -> None:
        """Record the reply and its usage."""
        await self._session.reply(response.to_input_items(), usage=_usage(response))

    def tools(self) -> list[FunctionTool]:
        """The two tools with which the model reads again what left its window, to be put among the agent's."""
        return [_tool(self._session, definition) for definition in self._session.tools(FORMAT)]


def _definitions(tools: Sequence[Any]) -> list[dict[str, Any]]:
    """The agent's own functions. Tools of MCP servers and hosted ones are counted by the usage that comes back."""
    return [
        {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.params_json_schema,
            "strict": tool.strict_json_schema,
        }
        for tool in tools
        if isinstance(tool, FunctionTool)
    ]


def _usage(response: ModelResponse) -> dict[str, Any] | None:
    usage = response.usage
    counted = {"prompt_tokens": usage.input_tokens, "completion_tokens": usage.output_tokens}
    return {**counted, "cached_tokens": usage.input_tokens_details.cached_tokens} if usage.input_tokens else None


def _tool(session: LibrarySession, definition: Native) -> FunctionTool:
    name: str = definition["name"]

    async def call(context: Any, arguments: str) -> str:
        return str(await session.call_tool(name, arguments))

    return FunctionTool(
        name=name,
        description=definition["description"],
        params_json_schema=definition["parameters"],
        on_invoke_tool=call,
        strict_json_schema=False,
    )
