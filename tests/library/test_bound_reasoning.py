"""Models that bind their reasoning to what stands before it: the provider never has to drop any."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from contextstash import open_stash
from tests.support.bound_reasoning import Body
from tests.support.effort import THOROUGH
from tests.support.log_parts import part_of_a_log
from tests.support.plain_loops import run_loop
from tests.support.servers import answer, stdio_client
from tests.support.strict_provider import StrictProvider, strict_provider

TURNS = 150 if THOROUGH else 40
WINDOWS = (32_000, 128_000) if THOROUGH else (32_000,)
BINDING = {"anthropic": "claude-opus-5-5", "openai-responses": "gpt-6.2-sol"}


def messages_of(body: Body) -> list[Body]:
    found: list[Body] = body["messages"] if "messages" in body else body["input"]
    return found


def changes(requests: list[Body]) -> int:
    """How many requests do not begin with all of the one before them, breakpoints aside."""
    plain = [json.dumps(messages_of(body)).replace(', "cache_control": {"type": "ephemeral"}', "") for body in requests]
    return sum(not new.startswith(old[:-1]) for old, new in pairwise(plain))


def check(provider: StrictProvider, events: Sequence[str]) -> None:
    """Nothing was refused or dropped, and what was sent changed in compactions only."""
    assert (provider.invalid, provider.over) == ([], [])
    assert provider.mismatched == [0] * (TURNS + 1)
    counted = Counter(events)
    assert counted["compaction"] > 0
    assert counted["prune"] == 0
    assert changes(provider.requests) == counted["compaction"]
    for (old, new), (before, after) in zip(pairwise(provider.bare), pairwise(provider.requests), strict=True):
        assert new <= old or changes([before, after])


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("fmt", BINDING)
async def test_in_a_program_reasoning_stays_until_a_compaction(tmp_path: Path, fmt: str, window: int) -> None:
    with strict_provider(window=window, turns=TURNS, binds=True) as provider:
        async with open_stash(tmp_path / "s.db") as stash:
            session = stash.session("job", model=BINDING[fmt], window=window)
            messages: list[Any] = [{"role": "user", "content": "Why do loans fail?"}]
            assert await run_loop(fmt, provider.url, session, messages) == "done"
            events = [event.kind for event in await stash.use_cases.read_events("job", limit=1_000)]
    check(provider, events)


async def reply_of(fmt: str, url: str, shown: list[Body]) -> tuple[list[Body], dict[str, Any], list[Body]]:
    """The reply to a request as messages, its usage, and the results of its calls."""
    if fmt == "anthropic":
        async with AsyncAnthropic(base_url=url, api_key="test", max_retries=0) as claude:
            message = await claude.messages.create(model=BINDING[fmt], max_tokens=2_000, messages=shown)  # type: ignore[arg-type]
        content = [block.model_dump(exclude_none=True) for block in message.content]
        results = [
            {"type": "tool_result", "tool_use_id": each["id"], "content": part_of_a_log(each["input"]["n"])}
            for each in content
            if each["type"] == "tool_use"
        ]
        usage = message.usage.model_dump(exclude_none=True)
        return (
            [{"role": "assistant", "content": content}],
            usage,
            [{"role": "user", "content": results}][: len(results)],
        )
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="test", max_retries=0) as openai:
        reply = await openai.responses.create(model=BINDING[fmt], max_output_tokens=2_000, input=shown)  # type: ignore[arg-type]
    items = [item.model_dump(exclude_none=True) for item in reply.output]
    assert reply.usage is not None
    results = [
        {
            "type": "function_call_output",
            "call_id": each["call_id"],
            "output": part_of_a_log(json.loads(each["arguments"])["n"]),
        }
        for each in items
        if each["type"] == "function_call"
    ]
    return items, reply.usage.model_dump(exclude_none=True), results


@pytest.mark.parametrize("fmt", BINDING)
async def test_over_mcp_reasoning_stays_until_a_compaction(tmp_path: Path, fmt: str) -> None:
    facts = {"session_id": "job", "format": fmt, "model": BINDING[fmt]}
    with strict_provider(window=32_000, turns=TURNS, binds=True) as provider:
        async with stdio_client(tmp_path / "s.db") as client:
            await answer(
                client, "record_messages", messages=[{"role": "user", "content": "Why do loans fail?"}], **facts
            )
            await answer(client, "configure_session", session_id="job", settings={"window": 32_000})
            results: list[Body] = [{}]
            while results:
                context = await answer(client, "get_context", session_id="job")
                assert context["fits"]
                reply, usage, results = await reply_of(fmt, provider.url, context["messages"])
                await answer(client, "record_messages", session_id="job", messages=reply, usage=usage)
                if results:
                    await answer(client, "record_messages", session_id="job", messages=results)
        async with open_stash(tmp_path / "s.db") as stash:
            events = [event.kind for event in await stash.use_cases.read_events("job", limit=1_000)]
    check(provider, events)
