"""A provider on loopback whose model runs one shell command after the other, as long as it is told to.

Messages and Responses, streamed. It counts a request by its bytes and reports that as usage, so that a client compacts
when its own threshold is reached, and it writes the summary that the client then asks for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.support.bound_reasoning import reasoning_after
from tests.support.loopback_server import served

Json = dict[str, Any]

BYTES_PER_TOKEN = 4
SUMMARY = "<summary>The model's summary: the work goes on.</summary>"
SUB_AGENT = "You are the helper."
"""A prompt with these words is a sub-agent's."""

_COMPACTION = ("your task is to create a detailed summary", "context checkpoint compaction", "compaction_trigger")
_SHELLS = {"Bash": "command", "exec_command": "cmd", "shell_command": "command"}
"""The clients' tools that run a shell command, and their arguments."""


@dataclass(frozen=True)
class Asked:
    """A request that the provider got. `compacts` is true if it asks for the client's own summary."""

    path: str
    headers: dict[str, str]
    body: Json
    tokens: int
    compacts: bool

    @property
    def text(self) -> str:
        """What the request says, as JSON."""
        return json.dumps(self.body.get("messages") or self.body.get("input"), ensure_ascii=False)

    @property
    def outputs(self) -> list[Any]:
        """The outputs of tools that the request holds."""
        listed = self.body.get("input") or []
        blocks = [block for message in self.body.get("messages") or [] for block in message["content"]]
        found = [item["output"] for item in listed if str(item.get("type")).endswith("call_output")]
        results = [block for block in blocks if isinstance(block, dict) and block.get("type") == "tool_result"]
        return found + [block["content"] for block in results]

    @property
    def is_sub_agent(self) -> bool:
        return SUB_AGENT in self.text and f'"prompt": "{SUB_AGENT}' not in self.text.replace('\\"', '"')


@dataclass
class CodingProvider:
    """Its address and the requests of the main agent and its sub-agents; `usages` are the model and the tokens of each
    request that is billed, also of those without tools. The main agent runs `command` `steps` times, a sub-agent
    `sub_agent_steps` times; the main agent starts one first if there are any. With `fails_to_compact` it refuses to
    write a summary, and counts that. If it `thinks`, each call comes after reasoning; `thoughts` counts what came back
    of it. The reply number `drops_at` reports a piece of reasoning as dropped."""

    command: str
    steps: int
    sub_agent_steps: int = 0
    bytes_per_token: float = BYTES_PER_TOKEN
    thinks: bool = False
    drops_at: int | None = None
    thoughts: int = 0
    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    usages: list[tuple[str, int]] = field(default_factory=list)
    others: list[tuple[str, str]] = field(default_factory=list)
    made: dict[str, int] = field(default_factory=dict)
    fails_to_compact: bool = False
    refused: int = 0

    def turns(self) -> list[Asked]:
        """The main agent's requests, without those for a summary."""
        return [each for each in self.asked if not each.compacts and not each.is_sub_agent]

    def next_call(self, asked: Asked) -> tuple[str, Json] | None:
        """The call of the model's next reply, None if it is done."""
        tools = {tool.get("name"): tool for tool in asked.body.get("tools") or []}
        shell = next((name for name in _SHELLS if name in tools), None)
        if shell is None or asked.compacts:
            return None
        who = "sub-agent" if asked.is_sub_agent else "main"
        starter = next((name for name in ("Agent", "Task") if name in tools), None)
        made = self.made[who] = self.made.get(who, 0) + 1
        if who == "main" and self.sub_agent_steps and starter and made == 1:
            task = {"description": "help", "prompt": f"{SUB_AGENT} Run it.", "subagent_type": "general-purpose"}
            return starter, task
        if made > (self.sub_agent_steps if asked.is_sub_agent else self.steps):
            return None
        return shell, {_SHELLS[shell]: f"{self.command} # {who} {made}"}


@contextmanager
def coding_provider(
    command: str,
    steps: int,
    sub_agent_steps: int = 0,
    bytes_per_token: float = BYTES_PER_TOKEN,
    *,
    thinks: bool = False,
    drops_at: int | None = None,
) -> Iterator[CodingProvider]:
    """A provider on a free port of this machine."""
    provider = CodingProvider(command, steps, sub_agent_steps, bytes_per_token, thinks, drops_at)
    with served(_Handler, provider=provider) as provider.url:
        yield provider


class _Handler(BaseHTTPRequestHandler):
    provider: CodingProvider

    def do_GET(self) -> None:
        self.provider.others.append(("GET", self.path))
        self._send(b"{}", "application/json")

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers.get("content-length") or 0))
        path = self.path.partition("?")[0]
        write = _messages if path.endswith("/messages") else _responses if path.endswith("/responses") else None
        if write is None:
            self.provider.others.append(("POST", self.path))
            self._send(b'{"input_tokens": 10}', "application/json")
            return
        body = json.loads(data)
        last = json.dumps((body.get("messages") or body.get("input") or [{}])[-1]).lower()
        compacts = any(words in last for words in _COMPACTION)
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = Asked(self.path, headers, body, int(len(data) / self.provider.bytes_per_token), compacts)
        if compacts and self.provider.fails_to_compact:
            self.provider.refused += 1
            self._send(b'{"type": "error", "error": {"type": "invalid_request_error", "message": "No."}}', status=400)
            return
        call = self.provider.next_call(asked)
        self.provider.usages.append((body["model"], asked.tokens))
        if body.get("tools") or compacts:
            self.provider.asked.append(asked)
        number = len(self.provider.asked)
        events = write(asked, call, number)
        if call is not None and self.provider.thinks:
            self._think(asked, events, "anthropic" if write is _messages else "openai-responses")
        if number == self.provider.drops_at:
            self.provider.drops_at = None
            first = events[0].get("message") or events[-1]["response"]
            first["input_transformations"] = [{"type": "dropped", "id": "r_1", "reason": "prefix_mismatch"}]
        text = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
        self._send(text.encode(), "text/event-stream")

    def _think(self, asked: Asked, events: list[Json], fmt: str) -> None:
        """Put reasoning in front of the call, and count what came back of earlier ones."""
        self.provider.thoughts += asked.text.count('"signature"') + asked.text.count('"encrypted_content"')
        thought = reasoning_after(fmt, asked.body, len(self.provider.asked))
        assert thought is not None
        if fmt == "anthropic":
            for event in events[1:4]:
                event["index"] = 1
            deltas = [{"type": "thinking_delta", "thinking": thought["thinking"]}]
            deltas.append({"type": "signature_delta", "signature": thought["signature"]})
            empty = {"type": "thinking", "thinking": "", "signature": ""}
            events[1:1] = [
                {"type": "content_block_start", "index": 0, "content_block": empty},
                *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
                {"type": "content_block_stop", "index": 0},
            ]
        else:
            for event in events[1:3]:
                event["output_index"] = 1
            events[-1]["response"]["output"].insert(0, thought)
            kinds = ("response.output_item.added", "response.output_item.done")
            events[1:1] = [{"type": kind, "output_index": 0, "item": thought} for kind in kinds]
            for at, event in enumerate(events):
                event["sequence_number"] = at

    def _send(self, body: bytes, kind: str = "application/json", status: int = 200) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def _text(asked: Asked) -> str:
    return SUMMARY if asked.compacts else "All done."


def _messages(asked: Asked, call: tuple[str, Json] | None, number: int) -> list[Json]:
    usage = {"input_tokens": asked.tokens, "output_tokens": 1}
    message: Json = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": asked.body["model"]}
    message |= {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
    if call is None:
        block: Json = {"type": "text", "text": ""}
        delta: Json = {"type": "text_delta", "text": _text(asked)}
    else:
        block = {"type": "tool_use", "id": f"toolu_{number:020d}", "name": call[0], "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(call[1])}
    end = {"stop_reason": "end_turn" if call is None else "tool_use", "stop_sequence": None}
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": end, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    ]


def _responses(asked: Asked, call: tuple[str, Json] | None, number: int) -> list[Json]:
    item: Json = {"type": "message", "role": "assistant", "id": f"msg_{number}", "status": "completed"}
    item["content"] = [{"type": "output_text", "text": _text(asked), "annotations": []}]
    if call is not None:
        item = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "status": "completed"}
        item |= {"name": call[0], "arguments": json.dumps(call[1])}
    if asked.compacts and "compaction_trigger" in asked.text:  # OpenAI's own compaction, whose item nobody can read
        item = {"type": "compaction", "id": f"cmp_{number}", "encrypted_content": "c2VhbGVk"}
    answer = {"id": f"resp_{number}", "object": "response", "created_at": 1, "model": asked.body["model"]}
    usage = {"input_tokens": asked.tokens, "output_tokens": 5, "total_tokens": asked.tokens + 5}
    answer |= {"output": [item], "status": "completed", "usage": usage}
    events: list[Json] = [
        {"type": "response.created", "response": {**answer, "output": [], "status": "in_progress"}},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": answer},
    ]
    return [{**event, "sequence_number": at} for at, event in enumerate(events)]
