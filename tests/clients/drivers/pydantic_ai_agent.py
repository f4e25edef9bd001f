"""An agent of pydantic-ai. Arguments: the provider's address, then the server's command."""

import asyncio
import sys

from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


async def main(url: str, command: list[str]) -> None:
    model = OpenAIChatModel("gpt-5.4", provider=OpenAIProvider(base_url=f"{url}/v1", api_key="none"))
    server = MCPToolset(StdioTransport(command=command[0], args=command[1:]), init_timeout=200)
    await Agent(model, toolsets=[server]).run("Find the valve.")


asyncio.run(main(sys.argv[1], sys.argv[2:]))
