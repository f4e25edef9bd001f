"""OpenHands: its condenser, which counts by LiteLLM. A model on loopback returns its summary at once, so that only the
condenser's own work counts."""

import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it asks the network for prices when it is imported
os.environ["OPENHANDS_SUPPRESS_BANNER"] = "1"

from openhands.sdk import LLM
from openhands.sdk.context.condenser import LLMSummarizingCondenser
from openhands.sdk.context.view import View
from openhands.sdk.event import ActionEvent, MessageEvent, ObservationEvent
from openhands.sdk.llm import Message, MessageToolCall, TextContent
from openhands.sdk.tool import Action, Observation
from pydantic import SecretStr

WINDOW = 200_000
MODEL = "openai/gpt-4o"


class Read(Action):
    path: str


class Text(Observation):
    pass


class Summarizer(BaseHTTPRequestHandler):
    """A model of the Chat Completions API that says the same short summary each time."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        message = {"role": "assistant", "content": "The agent has read files of the repository."}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 9, "total_tokens": 10}
        answer = {"id": "1", "object": "chat.completion", "created": 0, "model": MODEL, "choices": [choice]}
        body = json.dumps({**answer, "usage": usage}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Requests are not logged: the figures are printed."""


def events(message):  # type: ignore[no-untyped-def]
    if message["role"] == "tool":
        observation = Text.from_text(message["content"])
        call_id = message["tool_call_id"]
        return ObservationEvent(
            observation=observation, action_id=f"a_{call_id}", tool_name="read_file", tool_call_id=call_id
        )
    said = [TextContent(text=message["content"])]
    for call in message.get("tool_calls", ()):
        arguments = call["function"]["arguments"]
        return ActionEvent(
            id=f"a_{call['id']}",
            thought=said,
            action=Read(**json.loads(arguments)),
            tool_name="read_file",
            tool_call_id=call["id"],
            tool_call=MessageToolCall(id=call["id"], name="read_file", arguments=arguments, origin="completion"),
            llm_response_id=call["id"],
        )
    return MessageEvent(source="user", llm_message=Message(role="user", content=said))


def timed(work):  # type: ignore[no-untyped-def]
    begun = time.perf_counter()
    result = work()
    return result, (time.perf_counter() - begun) * 1_000


server = ThreadingHTTPServer(("127.0.0.1", 0), Summarizer)
threading.Thread(target=server.serve_forever, daemon=True).start()
model = LLM(
    model=MODEL,
    api_key=SecretStr("none"),
    base_url=f"http://127.0.0.1:{server.server_port}/v1",
    usage_id="condenser",
    max_input_tokens=WINDOW,
)
condenser = LLMSummarizingCondenser(llm=model, max_size=1_000_000, max_tokens=WINDOW, keep_first=2)
history = [events(json.loads(line)) for line in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()]
condenser.condense(View.from_events(history[:4]), agent_llm=model)  # loads the vocabulary

condensation, first = timed(lambda: condenser.condense(View.from_events(history[:-2]), agent_llm=model))
_, again = timed(
    lambda: condenser.condense(View.from_events([*history[:-2], condensation, *history[-2:]]), agent_llm=model)
)
print(json.dumps({"fit a list into the window: condenser": first, "the same after one more turn: condenser": again}))
