"""A synchronous loop with OpenAI's SDK whose window never overflows: `python agent_loop_openai.py "your task"`."""

import json
import os
import subprocess
import sys

from openai import BadRequestError, OpenAI

from contextstash import open_stash_sync

MODEL = os.environ.get("MODEL", "gpt-5.4-mini")
SYSTEM = "You answer questions about this machine. Use the shell."
PARAMETERS = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
SHELL = {
    "type": "function",
    "function": {"name": "shell", "description": "Run a shell command.", "parameters": PARAMETERS},
}


def run(command: str) -> str:
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=300, check=False)
    return done.stdout + done.stderr


def main(task: str) -> None:
    with OpenAI() as client, open_stash_sync() as stash:
        session = stash.session(f"loop-{os.getpid()}", model=MODEL)
        tools = [SHELL, *session.tools("openai-chat")]  # with ours the model reads again what left its window
        messages = [{"role": "user", "content": task}]
        while True:
            request = session.request(messages, system=SYSTEM, tools=tools, max_tokens=8_000)
            if not request.fits:  # system prompt and tools alone exceed the window
                sys.exit(request.reason)
            try:
                reply = client.chat.completions.create(messages=request.messages, **request.options)
            except BadRequestError as error:
                request = session.recover(error)  # raises the error again if it is about something else
                reply = client.chat.completions.create(messages=request.messages, **request.options)
            messages += session.reply(reply)
            message = reply.choices[0].message
            if not message.tool_calls:
                print(message.content)
                return
            for call in message.tool_calls:
                output = session.call_tool(call.function.name, call.function.arguments)
                if output is None:  # not one of ours
                    output = run(json.loads(call.function.arguments)["command"])
                messages.append({"role": "tool", "tool_call_id": call.id, "content": output})


if __name__ == "__main__":
    if not os.environ.get("OPENAI_API_KEY"):
        sys.exit("Set OPENAI_API_KEY: this program asks a model.")
    main(" ".join(sys.argv[1:]) or "How many Python files are in this folder?")
