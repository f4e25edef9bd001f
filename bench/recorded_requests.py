"""The requests of native transcripts, as the clients sent them: Claude Code's and Codex's.

calls = recorded(Path("session.jsonl"))  # when, which messages, what the provider counted, and what the model replied
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.fidelity.facts import facts_of
from contextstash.window.models import price_of
from contextstash_storage.records import Usage

Native = dict[str, Any]

PROMPT = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")

UNREADABLE = frozenset({"signature", "data", "encrypted_content", "id", "call_id", "tool_use_id", "type", "media_type"})
"""Keys of a message whose values say nothing to the model."""


@dataclass
class Recorded:
    """One request of a session: when, with which messages and model, and what the provider counted. `reply` is what the
    model then said and called, without results; empty if the transcript ends, or if the client compacted."""

    at: float
    messages: Sequence[Native]
    model: str
    prompt: int
    cached: int = 0
    written: int = 0
    one_hour: bool = False
    reply: Sequence[Native] = field(default_factory=tuple)

    @property
    def format(self) -> str:
        return "anthropic" if self.model.startswith("claude") else "openai-responses"


def recorded(path: Path) -> list[Recorded]:
    """The requests of the main conversation of a transcript, of Claude Code or of Codex."""
    records = []
    for line in path.read_text("utf-8", "replace").splitlines():
        if line.startswith("{"):
            try:
                records.append(json.loads(line))
            except ValueError:  # two records run together, as their writer left them
                continue
    is_codex = any(each.get("type") == "session_meta" for each in records[:3])
    found = sorted(_codex(records) if is_codex else _claude(records), key=lambda each: each.at)
    for call, following in pairwise(found):
        count = len(call.messages)
        if following.messages[: min(count, 3)] == call.messages[: min(count, 3)]:
            call.reply = list(_replied(following.messages[count:]))
    return found


def _replied(messages: Sequence[Native]) -> Iterator[Native]:
    """What the model said and called right behind a request: everything up to the first message that is not its own."""
    for message in messages:
        if message.get("role") == "user" or str(message.get("type", "")).endswith("_output"):
            return
        yield message


def _claude(records: Sequence[Native]) -> Iterator[Recorded]:
    by_id = {each["uuid"]: each for each in records if "uuid" in each}
    results = _results(records)
    seen: set[str] = set()
    for record in records:
        message = record.get("message")
        if record.get("type") != "assistant" or record.get("isSidechain") or not isinstance(message, dict):
            continue
        usage = message.get("usage") or {}
        prompt = sum(usage.get(key) or 0 for key in PROMPT)
        if message.get("id") in seen or message.get("model") == "<synthetic>" or prompt < 1000:
            continue
        seen.add(message["id"])
        at = datetime.fromisoformat(record["timestamp"].replace("Z", "+00:00")).timestamp()
        long = bool((usage.get("cache_creation") or {}).get("ephemeral_1h_input_tokens"))
        messages = list(_history(record, by_id, results))
        read, written = (usage.get(key) or 0 for key in PROMPT[1:])
        if messages:
            yield Recorded(at, messages, message["model"], prompt, read, written, long)


def _results(records: Sequence[Native]) -> dict[str, Native]:
    """The results by the ids of their calls."""
    contents = [(record.get("message") or {}).get("content") for record in records if record.get("type") == "user"]
    blocks = [block for content in contents if isinstance(content, list) for block in content]
    return {block["tool_use_id"]: block for block in blocks if isinstance(block, dict) and "tool_use_id" in block}


def _history(record: Native, by_id: Mapping[str, Native], results: Mapping[str, Native]) -> Iterator[Native]:
    """The messages before a reply, as Claude Code sends them: neighbours of one role are one message. Of parallel
    calls, each result is the child of its own call, so only one is among the parents of the reply."""
    path = []
    own = record["message"]["id"]
    while (parent := by_id.get(record.get("parentUuid") or "")) is not None:
        record = parent
        message = record.get("message")
        if record.get("type") in ("user", "assistant") and isinstance(message, dict) and message.get("id") != own:
            path.append(message)
    merged: list[Native] = []
    for message in reversed(path):
        content = message["content"]
        listed = [{"type": "text", "text": content}] if isinstance(content, str) else content
        parts = [block for block in listed if isinstance(block, dict)]
        if merged and merged[-1]["role"] == message["role"]:
            merged[-1]["content"] += parts
        else:
            merged.append({"role": message["role"], "content": parts})
    shown = {block["tool_use_id"] for each in merged for block in each["content"] if "tool_use_id" in block}
    for called, following in pairwise(merged):
        missing = [block["id"] for block in called["content"] if "id" in block and block["id"] not in shown]
        following["content"] = [*(results[each] for each in missing if each in results), *following["content"]]
    while merged and merged[0]["role"] != "user":
        merged.pop(0)
    yield from merged


def _codex(records: Sequence[Native]) -> Iterator[Recorded]:
    """Codex writes a request's count behind the reply and in front of the results of its calls."""
    items: list[Native] = []
    start, model = 0, "gpt-5.4"
    for record in records:
        payload = record.get("payload") or {}
        kind = (record.get("type"), payload.get("type"))
        if kind[0] == "turn_context":
            model = payload.get("model") or model
        elif kind[0] == "compacted":
            items = list(payload.get("replacement_history") or ())
        elif kind[0] == "response_item":
            if not _is_models(payload):
                start = len(items) + 1
            items.append(payload)
        elif kind == ("event_msg", "token_count"):
            usage = (payload.get("info") or {}).get("last_token_usage")
            if usage and usage["input_tokens"] >= 1000 and 0 < start <= len(items):
                at = datetime.fromisoformat(record["timestamp"].replace("Z", "+00:00")).timestamp()
                read = usage.get("cached_input_tokens") or 0
                yield Recorded(at, items[:start], model, usage["input_tokens"], read)
        start = min(start, len(items))


def _is_models(item: Native) -> bool:
    if item.get("type") == "message":
        return item.get("role") == "assistant"
    return not str(item.get("type")).endswith("_output")


def texts(value: Any) -> Iterator[str]:
    """All that a model can read of a message, also within arguments that are JSON in a string."""
    if isinstance(value, str):
        if value[:1] in "{[" and value[-1:] in "}]":
            try:
                inner = json.loads(value)
            except ValueError:
                inner = None
            if isinstance(inner, dict | list):
                yield from texts(inner)
                return
        yield value
    elif isinstance(value, dict):
        for key, each in value.items():
            if key not in UNREADABLE:
                yield from texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from texts(each)


def facts_in(value: Any) -> set[str]:
    """The facts that a model can read of messages."""
    return set().union(*(facts_of(text) for text in texts(value)))


PRICED_TOKENS = 1_000
"""Tokens of the prompt by which prices are compared: below every step of a price table (the lowest is at 32,000)."""


@dataclass(frozen=True, slots=True)
class CachePriceRatios:
    """The costs of a token read from the prompt cache and of one written to it, relative to an uncached input token of
    the same model. `long_write` is a write that the cache keeps for an hour."""

    read: float
    write: float
    long_write: float


@cache
def cache_price_ratios(model: str | None) -> CachePriceRatios | None:
    """These ratios by the model's price table, for a small prompt; None if its price is not known."""
    plain = price_of(model, Usage(prompt_tokens=PRICED_TOKENS))
    read = price_of(model, Usage(prompt_tokens=PRICED_TOKENS, cached_tokens=PRICED_TOKENS))
    written = Usage(prompt_tokens=PRICED_TOKENS, cache_write_tokens=PRICED_TOKENS)
    write = price_of(model, written)
    long_write = price_of(model, written.model_copy(update={"cache_write_1h_tokens": PRICED_TOKENS}))
    if not plain or read is None or write is None or long_write is None:
        return None
    return CachePriceRatios(read / plain, write / plain, long_write / plain)
