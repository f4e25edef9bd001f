"""An agent loop with OpenAI's SDK whose window never overflows: `python agent_loop_openai.py "your task"`."""

import asyncio
import json
import os
import subprocess
import sys

from mcp import Client, StdioServerParameters
from openai import AsyncOpenAI

MODEL = os.environ.get("MODEL", "gpt-5.4-mini")
PARAMETERS = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
SHELL = {
    "type": "function",
    "function": {"name": "shell", "description": "Run a shell command.", "parameters": PARAMETERS},
}
SERVER = StdioServerParameters(
    command=sys.executable, args=["-m", "contextstash", "serve", "--tools", "all"], env=dict(os.environ)
)


def run(command: str) -> str:
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=300, check=False)
    return done.stdout + done.stderr


async def main(task: str) -> None:
    model = AsyncOpenAI()
    async with Client(SERVER) as stash:

        async def record(*messages: dict, **more: object) -> None:
            nonlocal next_seq  # with the position a message that is sent again is stored once
            batch = {"session_id": session, "messages": list(messages), "first_seq": next_seq, **more}
            recorded = await stash.call_tool("record_messages", batch)
            next_seq = recorded.structured_content["next_seq"]

        session, next_seq = f"loop-{os.getpid()}", 0
        await record({"role": "user", "content": task}, model=MODEL, format="openai-chat")
        while True:
            context = await stash.call_tool("get_context", {"session_id": session, "tools": [SHELL]})
            messages = context.structured_content["messages"]
            reply = await model.chat.completions.create(model=MODEL, messages=messages, tools=[SHELL])
            message = reply.choices[0].message
            await record(message.model_dump(exclude_none=True), usage=reply.usage.model_dump(exclude_none=True))
            if not message.tool_calls:
                print(message.content)
                return
            for call in message.tool_calls:
                output = run(json.loads(call.function.arguments)["command"])
                await record({"role": "tool", "tool_call_id": call.id, "content": output})


if __name__ == "__main__":
    if not os.environ.get("OPENAI_API_KEY"):
        sys.exit("Set OPENAI_API_KEY: this program asks a model.")
    asyncio.run(main(" ".join(sys.argv[1:]) or "How many Python files are in this folder?"))
