"""A round trip: start the server as a client does, list its tools and call one of them."""

from __future__ import annotations

from collections.abc import Sequence

from mcp import Client, StdioServerParameters
from mcp.types import CallToolResult

from contextstash_storage.errors import ContextstashError


async def round_trip(command: Sequence[str], seconds: float) -> tuple[int, int]:
    """How many tools the server at `command` lists over stdio, and how many tokens it counts in a message; each request
    may take `seconds`. Raises ContextstashError if the call fails."""
    server = StdioServerParameters(command=command[0], args=list(command[1:]))
    async with Client(server, read_timeout_seconds=seconds) as client:
        tools = (await client.list_tools()).tools
        messages = [{"role": "user", "content": "Is everything well?"}]
        answer = await client.call_tool("estimate_context", {"messages": messages})
        if not isinstance(answer, CallToolResult) or answer.is_error or not answer.structured_content:
            raise ContextstashError("The server answered a tool call with an error.")
        return len(tools), int(answer.structured_content["tokens"])
