"""GPT from 6.2 on binds its reasoning to what stands before it, and drops it silently if that changes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.caching_provider import CachingProvider
from tests.support.proxies import Clock, RunningProxy

SESSION = "codex-1"

TOOL = {"type": "function", "name": "contextstash__get_archived_output", "parameters": {"type": "object"}}


def items(turns: int, *, reasoning: bool = True) -> list[dict[str, Any]]:
    """The input of a request with so many tool calls, each after a piece of reasoning."""
    listed: list[dict[str, Any]] = [{"role": "user", "content": "Fix it."}]
    for number in range(turns):
        if reasoning:
            listed.append({"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": "x" * 400})
        arguments = json.dumps({"path": f"/a/{number}"})
        listed.append({"type": "function_call", "call_id": f"c{number}", "name": "read", "arguments": arguments})
        text = "".join(f"line {number}-{k}\n" for k in range(900))
        listed.append({"type": "function_call_output", "call_id": f"c{number}", "output": text})
    return listed


def reply() -> Any:
    """A provider that reports a usage in each reply."""
    usage = {"input_tokens": 30_000, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 5}
    response = {"id": "resp_1", "object": "response", "output": [], "usage": usage}
    return lambda body: [
        {"type": "response.created", "response": {"id": "resp_1"}},
        {"type": "response.completed", "response": response},
    ]


def ask(proxy: RunningProxy, model: str, listed: list[dict[str, Any]], **fields: Any) -> None:
    body = {"model": model, "input": listed, "tools": [TOOL], "stream": True, **fields}
    content = json.dumps(body).encode()
    assert proxy.http.post(f"{proxy.url}/v1/responses", content=content, headers={"session-id": SESSION}).is_success
    proxy.settle()


@pytest.mark.parametrize(
    ("model", "reasoning", "pruned"),
    [("gpt-6.2-sol", True, False), ("gpt-6.2-sol", False, True), ("gpt-6.1-sol", True, True), ("gpt-7", True, False)],
)
def test_what_was_sent_is_pruned_only_if_no_bound_reasoning_follows(
    provider: CachingProvider, proxy: RunningProxy, clock: Clock, model: str, reasoning: bool, pruned: bool
) -> None:
    provider.responses_events = reply()
    for turns in (7, 8):
        ask(proxy, model, items(turns, reasoning=reasoning))
        clock.now += 4_000
    shown = [each["output"] for each in provider.asked[-1].json["input"] if "output" in each]
    assert ("get_archived_output" in shown[0]) is pruned
