"""An agent of the OpenAI Agents SDK. Arguments: the provider's address, then the server's command."""

import asyncio
import sys

from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
from agents.mcp import MCPServerStdio
from openai import AsyncOpenAI


async def main(url: str, command: list[str]) -> None:
    set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    parameters = {"command": command[0], "args": command[1:]}
    async with MCPServerStdio(params=parameters, client_session_timeout_seconds=60) as server:
        model = OpenAIChatCompletionsModel(model="gpt-5.4", openai_client=client)
        await Runner.run(Agent(name="finder", model=model, mcp_servers=[server]), "Find the valve.")


asyncio.run(main(sys.argv[1], sys.argv[2:]))
