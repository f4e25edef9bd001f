"""A provider on loopback for Claude Code, whose model reads files until the client compacts, and then ends."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.support.loopback_server import served
from tests.support.model_replies import ReplyingHandler, message_events, tool_use

Json = dict[str, Any]

FIXED_TOKENS, RESULT_TOKENS = 20_000, 5_000
"""The usage that is reported: of a request without results, and of each result. The client compacts by these."""

SUMMARY = "<summary>The files part0.py and the following were read.</summary>"


@dataclass
class CompactingProvider:
    """Its address, the tools that its model calls one by one, and the requests in order."""

    calls: Sequence[tuple[str, Json]]
    url: str = ""
    asked: list[Json] = field(default_factory=list)
    made: int = 0
    summarized: bool = False

    def after_compaction(self) -> list[str]:
        """The texts of the first request after the compaction, one for each block."""
        request = next(
            each for each in self.asked if SUMMARY[9:40] in json.dumps(each["messages"]) and not _summarizes(each)
        )
        return [text for message in request["messages"] for text in _texts(message["content"])]


@contextmanager
def compacting_provider(calls: Sequence[tuple[str, Json]]) -> Iterator[CompactingProvider]:
    """A provider on a free port of this machine."""
    provider = CompactingProvider(calls)
    with served(_Handler, provider=provider) as provider.url:
        yield provider


class _Handler(ReplyingHandler, BaseHTTPRequestHandler):
    provider: CompactingProvider

    def do_GET(self) -> None:
        self.send_json({})

    def do_POST(self) -> None:
        asked = json.loads(self.asked_bytes() or b"{}")
        if self.path.partition("?")[0] != "/v1/messages":
            self.send_json({"input_tokens": 10})
            return
        results = _results(asked)
        tokens = FIXED_TOKENS + RESULT_TOKENS * results
        events = message_events(asked["model"], results, self._block(asked), tokens)
        if asked.get("stream"):
            self.send_events(events)
        else:
            whole = {**events[0]["message"], "content": [{"type": "text", "text": "done"}], "stop_reason": "end_turn"}
            self.send_json(whole)

    def _block(self, asked: Json) -> Json:
        """The block of the reply: the next call, the summary, or the end."""
        provider = self.provider
        provider.asked.append(asked)
        if _summarizes(asked):
            provider.summarized = True
            return {"type": "text", "text": SUMMARY}
        offered = {tool.get("name") for tool in asked.get("tools") or ()}
        if provider.summarized or provider.made >= len(provider.calls) or provider.calls[0][0] not in offered:
            return {"type": "text", "text": "Done."}
        name, arguments = provider.calls[provider.made]
        provider.made += 1
        return tool_use(provider.made, name, arguments)


def _summarizes(asked: Json) -> bool:
    """Whether the client asks for a summary of the conversation: the newest message says so."""
    return any("detailed summary of" in text for text in _texts(asked["messages"][-1]["content"]))


def _texts(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [block["text"] for block in content if block.get("type") == "text"]


def _results(asked: Json) -> int:
    return sum(
        block.get("type") == "tool_result"
        for message in asked["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
    )
