"""An agent loop with Anthropic's SDK whose window never overflows: `python agent_loop_anthropic.py "your task"`."""

import asyncio
import os
import subprocess
import sys

from anthropic import AsyncAnthropic, BadRequestError

from contextstash import open_stash

MODEL = os.environ.get("MODEL", "claude-sonnet-4-5")
SYSTEM = "You answer questions about this machine. Use the shell."
SHELL = {
    "name": "shell",
    "description": "Run a shell command.",
    "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
}


def run(command: str) -> str:
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=300, check=False)
    return done.stdout + done.stderr


async def main(task: str) -> None:
    async with AsyncAnthropic() as client, open_stash() as stash:
        session = stash.session(f"loop-{os.getpid()}", model=MODEL)
        tools = [SHELL, *session.tools("anthropic")]  # with ours the model reads again what left its window
        messages = [{"role": "user", "content": task}]
        while True:
            request = await session.request(messages, system=SYSTEM, tools=tools, max_tokens=8_000)
            if not request.fits:  # system prompt and tools alone exceed the window
                sys.exit(request.reason)
            try:
                reply = await client.messages.create(messages=request.messages, **request.options)
            except BadRequestError as error:
                request = await session.recover(error)  # raises the error again if it is about something else
                reply = await client.messages.create(messages=request.messages, **request.options)
            messages += await session.reply(reply)
            calls = [block for block in reply.content if block.type == "tool_use"]
            if not calls:
                print(*(block.text for block in reply.content if block.type == "text"))
                return
            results = []
            for call in calls:
                output = await session.call_tool(call.name, call.input)
                if output is None:  # not one of ours
                    output = run(call.input["command"])
                results.append({"type": "tool_result", "tool_use_id": call.id, "content": output})
            messages.append({"role": "user", "content": results})


if __name__ == "__main__":
    if not os.environ.get("ANTHROPIC_API_KEY"):
        sys.exit("Set ANTHROPIC_API_KEY: this program asks a model.")
    asyncio.run(main(" ".join(sys.argv[1:]) or "How many Python files are in this folder?"))
