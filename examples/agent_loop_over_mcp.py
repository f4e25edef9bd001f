"""An agent loop over MCP, as in any language: `python agent_loop_over_mcp.py "your task"`."""

import asyncio
import os
import subprocess
import sys

from anthropic import AsyncAnthropic
from mcp import Client, StdioServerParameters

MODEL = os.environ.get("MODEL", "claude-sonnet-4-5")
SHELL = {
    "name": "shell",
    "description": "Run a shell command.",
    "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
}
SERVER = StdioServerParameters(
    command=sys.executable, args=["-m", "contextstash", "serve", "--tools", "all"], env=dict(os.environ)
)


def run(command: str) -> str:
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=300, check=False)
    return done.stdout + done.stderr


async def main(task: str) -> None:
    model = AsyncAnthropic()
    async with Client(SERVER) as stash:

        async def record(message: dict, **more: object) -> None:
            nonlocal next_seq  # with the position a message that is sent again is stored once
            batch = {"session_id": session, "messages": [message], "first_seq": next_seq, **more}
            recorded = await stash.call_tool("record_messages", batch)
            next_seq = recorded.structured_content["next_seq"]

        session, next_seq = f"loop-{os.getpid()}", 0
        await record({"role": "user", "content": task}, model=MODEL, format="anthropic")
        while True:
            context = await stash.call_tool("get_context", {"session_id": session, "tools": [SHELL]})
            messages = context.structured_content["messages"]
            reply = await model.messages.create(model=MODEL, max_tokens=8_000, tools=[SHELL], messages=messages)
            content = [block.model_dump(exclude_none=True) for block in reply.content]
            await record({"role": "assistant", "content": content}, usage=reply.usage.model_dump(exclude_none=True))
            calls = [block for block in reply.content if block.type == "tool_use"]
            if not calls:
                print(*(block.text for block in reply.content if block.type == "text"))
                return
            results = [
                {"type": "tool_result", "tool_use_id": call.id, "content": run(call.input["command"])} for call in calls
            ]
            await record({"role": "user", "content": results})


if __name__ == "__main__":
    if not os.environ.get("ANTHROPIC_API_KEY"):
        sys.exit("Set ANTHROPIC_API_KEY: this program asks a model.")
    asyncio.run(main(" ".join(sys.argv[1:]) or "How many Python files are in this folder?"))
