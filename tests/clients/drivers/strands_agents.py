"""An agent of Strands. Arguments: the provider's address, then the server's command."""

import sys

from mcp import StdioServerParameters, stdio_client
from strands import Agent
from strands.models.openai import OpenAIModel
from strands.tools.mcp import MCPClient


def main(url: str, command: list[str]) -> None:
    parameters = StdioServerParameters(command=command[0], args=command[1:])
    with MCPClient(lambda: stdio_client(parameters), startup_timeout=200) as client:
        model = OpenAIModel(client_args={"base_url": f"{url}/v1", "api_key": "none"}, model_id="gpt-5.4")
        Agent(model=model, tools=client.list_tools_sync(), callback_handler=None)("Find the valve.")


main(sys.argv[1], sys.argv[2:])
