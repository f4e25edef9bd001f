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
from tests.support.model_replies import (
    ReplyingHandler,
    function_call,
    message_events,
    output_text,
    response_events,
    tool_use,
)

Json = dict[str, Any]

BYTES_PER_TOKEN = 4
SUMMARY = "<summary>The model's summary: the work goes on.</summary>"
SUB_AGENT = "You are the helper."
"""A prompt with these words is a sub-agent's."""

_COMPACTION = (
    "your task is to create a detailed summary",
    "context checkpoint compaction",
    "create a new anchored summary",
    "create a structured context checkpoint summary",
    "create a concise checkpoint of the user's request",
)
_SHELLS = {"Bash": "command", "bash": "command", "exec_command": "cmd", "shell_command": "command"}
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
    """Its address and the requests of the main agent and its sub-agents; `usages` are the model and the tokens of
    each request that is billed, also of those without tools. The main agent runs `command` `steps` times, a sub-
    agent `sub_agent_steps` times; the main agent starts one first if there are any, and makes its `first_calls`
    before all others. With `fails_to_compact` it refuses to write a summary, and counts that. If it `thinks`, each
    call comes after reasoning; `thoughts` counts what came back of it. The reply number `drops_at` reports a piece
    of reasoning as dropped."""

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
    first_calls: tuple[tuple[str, Json], ...] = ()

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
        if who == "main" and made <= len(self.first_calls):
            return self.first_calls[made - 1]
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


class _Handler(ReplyingHandler, BaseHTTPRequestHandler):
    provider: CodingProvider

    def do_GET(self) -> None:
        self.provider.others.append(("GET", self.path))
        self.send_json({})

    def do_POST(self) -> None:
        data = self.asked_bytes()
        path = self.path.partition("?")[0]
        write = _messages if path.endswith("/messages") else _responses if path.endswith("/responses") else None
        if write is None:
            self.provider.others.append(("POST", self.path))
            self.send_json({"input_tokens": 10})
            return
        body = json.loads(data)
        compacts = _asks_for_summary((body.get("messages") or body.get("input") or [{}])[-1])
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = Asked(self.path, headers, body, int(len(data) / self.provider.bytes_per_token), compacts)
        if compacts and self.provider.fails_to_compact:
            self.provider.refused += 1
            self.send_json({"type": "error", "error": {"type": "invalid_request_error", "message": "No."}}, 400)
            return
        call = self.provider.next_call(asked)
        self.provider.usages.append((body["model"], asked.tokens))
        if body.get("tools") or compacts or b'"additional_tools"' in data:  # an item of the input for GPT-6
            self.provider.asked.append(asked)
        number = len(self.provider.asked)
        events = write(asked, call, number)
        if call is not None and self.provider.thinks:
            self._think(asked, events, "anthropic" if write is _messages else "openai-responses")
        if number == self.provider.drops_at:
            self.provider.drops_at = None
            first = events[0].get("message") or events[-1]["response"]
            first["input_transformations"] = [{"type": "dropped", "id": "r_1", "reason": "prefix_mismatch"}]
        self.send_events(events)

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


def _asks_for_summary(last: Json) -> bool:
    """Whether the last message asks for the client's own summary. A hand-off, which Codex sends as a message of the
    developer and Claude Code in a block before, may quote such words."""
    content = last.get("content")
    said = json.dumps(content[-1] if isinstance(content, list) and content else content).lower()
    asked = last.get("role") == "user" and any(words in said for words in _COMPACTION)
    return asked or last.get("type") == "compaction_trigger"


def _text(asked: Asked) -> str:
    return SUMMARY if asked.compacts else "All done."


def _messages(asked: Asked, call: tuple[str, Json] | None, number: int) -> list[Json]:
    block = {"type": "text", "text": _text(asked)} if call is None else tool_use(number, *call)
    return message_events(asked.body["model"], number, block, asked.tokens)


def _responses(asked: Asked, call: tuple[str, Json] | None, number: int) -> list[Json]:
    item = output_text(number, _text(asked)) if call is None else function_call(number, *call)
    if asked.compacts and "compaction_trigger" in asked.text:  # OpenAI's own compaction, whose item only it can read
        item = {"type": "compaction", "id": f"cmp_{number}", "encrypted_content": "c2VhbGVk"}
    return response_events(asked.body["model"], number, item, asked.tokens)
