"""An agent of LangChain with its MCP adapters. Arguments: the provider's address, then the server's command."""

import asyncio
import sys

from langchain.agents import create_agent
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_openai import ChatOpenAI


async def main(url: str, command: list[str]) -> None:
    server = {"command": command[0], "args": command[1:], "transport": "stdio"}
    tools = await MultiServerMCPClient({"contextstash": server}).get_tools()
    model = ChatOpenAI(model="gpt-5.4", base_url=f"{url}/v1", api_key="none", max_retries=0, use_responses_api=False)
    await create_agent(model, tools=tools).ainvoke({"messages": [{"role": "user", "content": "Find the valve."}]})


asyncio.run(main(sys.argv[1], sys.argv[2:]))
