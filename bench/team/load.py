"""Agents that record and ask for their context over HTTP, each a session of its own, through whichever server answers.

Each recording names the position of its first message, so that it can be sent again if it is not known whether it was
stored. The requests are those of a client of the protocol; their JSON is written by hand, because 200 of the SDK's
clients in one process would take the processor from the servers.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import httpx2

HEADERS = {
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": "2025-11-25",
}

RETRY_SECONDS = 0.25
"""Pause before a call is sent again."""

AWAY_SECONDS = 5.0
"""For how long nothing is sent to a server that failed: nginx's default is 10 s (fail_timeout)."""

CALL_SECONDS = 30.0

OUTPUT_LINES = 40
"""Of a tool's output: some 1,800 characters, as the median of recorded sessions."""

SEARCH_EVERY, READ_EVERY = 5, 10
"""Turns after which an agent searches, and after which it reads an archived output."""


@dataclass(slots=True)
class Call:
    """A call that was answered in the end, after `tries`."""

    tool: str
    began: float
    seconds: float
    tries: int


@dataclass
class Load:
    """What all agents did."""

    urls: list[str]
    until: float
    pause: float
    calls: list[Call] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)
    away_until: dict[int, float] = field(default_factory=dict)

    def server_for(self, home: int) -> int:
        """The server that a call is sent to, as a proxy in front would choose: the agent's own, unless it failed a
        moment ago and another did not."""
        now = time.monotonic()
        order = [(home + step) % len(self.urls) for step in range(len(self.urls))]
        return next((server for server in order if self.away_until.get(server, 0.0) <= now), home)

    def note_failure(self, server: int, reason: str) -> None:
        """Send nothing to this server for AWAY_SECONDS."""
        self.failures[reason] += 1
        self.away_until[server] = time.monotonic() + AWAY_SECONDS


class Agent:
    """One session: `acknowledged` are the messages that a server said to have stored, in order."""

    def __init__(self, load: Load, client: httpx2.AsyncClient, number: int, token: str) -> None:
        self.session = f"agent-{number:05}"
        self.acknowledged: list[dict[str, Any]] = []
        self._load = load
        self._client = client
        self._headers = HEADERS | {"authorization": f"Bearer {token}"}
        self._home = number % len(load.urls)
        self._random = random.Random(number)

    async def run(self) -> None:
        """Take turns until the time is over."""
        await asyncio.sleep(self._random.uniform(0, self._load.pause))
        turn = 0
        while time.monotonic() < self._load.until:
            await self._turn(turn)
            turn += 1
            await asyncio.sleep(self._random.uniform(0.5, 1.5) * self._load.pause)

    async def _turn(self, turn: int) -> None:
        messages = _messages(self.session, turn, self._random)
        first = len(self.acknowledged)
        result = await self._call(
            "record_messages", messages=messages, first_seq=first, format="openai-chat", model="gpt-4.1"
        )
        assert result["next_seq"] == first + len(messages), (self.session, first, result)
        self.acknowledged += messages
        context = await self._call("get_context")
        assert context["messages"], self.session
        if turn % SEARCH_EVERY == SEARCH_EVERY - 1:
            await self._call("search_history", query=f"module_{turn // 2} raises")
        if turn % READ_EVERY == READ_EVERY - 1:
            hits = (await self._call("search_history", query=f"turn {turn // 2} value"))["hits"]
            handles = [hit["handle"] for hit in hits if "handle" in hit]
            if handles:
                await self._call("get_archived_output", handle=handles[0], max_tokens=500)

    async def _call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The answer of a tool, from the other server if this one does not respond."""
        params = {"name": tool, "arguments": {"session_id": self.session, **arguments}}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
        began, tries = time.monotonic(), 0
        while True:
            tries += 1
            server = self._load.server_for(self._home)
            answered = await self._try(self._load.urls[server], body)
            if isinstance(answered, dict):
                self._load.calls.append(Call(tool, began, time.monotonic() - began, tries))
                return answered
            self._load.note_failure(server, answered)
            await asyncio.sleep(RETRY_SECONDS)

    async def _try(self, url: str, body: bytes) -> dict[str, Any] | str:
        """The structured answer, or why there is none."""
        try:
            reply = await self._client.post(url, content=body, headers=self._headers, timeout=CALL_SECONDS)
        except httpx2.HTTPError as error:
            return type(error).__name__
        if reply.status_code >= 500:
            return f"status {reply.status_code}"
        assert reply.status_code == 200, (reply.status_code, reply.text[:300])
        text = reply.text
        if "event-stream" in reply.headers["content-type"]:
            [text] = [line[6:] for line in text.splitlines() if line.startswith("data: {")]
        result = json.loads(text)["result"]
        if result.get("isError"):
            told = str(result["content"][0]["text"])
            assert "database" in told or "store" in told or "locked" in told, told
            return "tool error: " + told[:60]
        structured: dict[str, Any] = result["structuredContent"]
        return structured


def _messages(session: str, turn: int, source: random.Random) -> list[dict[str, Any]]:
    """A turn of an agent: a call of a tool and its output, each with words of its own."""
    call = f"call_{turn}"
    function = {"name": "read_file", "arguments": json.dumps({"path": f"src/module_{turn}.py"})}
    lines = [f"{session} turn {turn} line {line}: value = {source.randrange(10**9)}" for line in range(OUTPUT_LINES)]
    lines[OUTPUT_LINES // 2] += f"; module_{turn} raises ParseError"
    messages: list[dict[str, Any]] = [
        {
            "role": "assistant",
            "content": f"{session} turn {turn}: reading.",
            "tool_calls": [{"id": call, "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": call, "content": "\n".join(lines)},
    ]
    if turn == 0:
        return [{"role": "user", "content": f"{session}: fix the parser."}, *messages]
    return messages
