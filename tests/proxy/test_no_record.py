"""`--no-record`: nothing is stored, and only what the model can read again leaves the requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.caching_provider import CachingProvider
from tests.support.proxies import OLD, READ, Clock, play, request_of, running_proxy, session, turn


def left_out(body: dict[str, Any]) -> list[str]:
    """The ids of the calls whose outputs were left out."""
    blocks = [block for message in body["messages"][1:] for block in message["content"]]
    return [block["tool_use_id"] for block in blocks if "call the tool again" in json.dumps(block.get("content"))]


def test_outputs_leave_by_memory_and_nothing_reaches_the_disk(
    provider: CachingProvider, clock: Clock, tmp_path: Path
) -> None:
    messages = session(8)
    with running_proxy(provider.url, tmp_path / "stash.db", clock, record=False) as proxy:
        play(proxy, clock, messages[:-2], tools=[READ])
        clock.now += 400
        play(proxy, clock, messages, first=len(messages), tools=[READ])
        messages += turn(8, "short")
        play(proxy, clock, messages, first=len(messages), tools=[READ])
    assert left_out(provider.bodies[-2]) == left_out(provider.bodies[-1]) == OLD
    assert provider.usage[-1]["cache_creation_input_tokens"] < 200
    assert "get_archived_output" not in provider.asked[-1].body.decode()
    assert list(tmp_path.iterdir()) == []


def test_an_output_that_a_second_call_would_not_repeat_stays(
    provider: CachingProvider, clock: Clock, tmp_path: Path
) -> None:
    messages = turn(100, "x " * 8_000, tool="Bash", argument="make deploy")
    messages = [{"role": "user", "content": "Deploy."}, *messages, *session(8)[1:]]
    with running_proxy(provider.url, tmp_path / "stash.db", clock, record=False) as proxy:
        play(proxy, clock, messages[:-2])
        clock.now += 400
        proxy.send(request_of(messages))
    assert left_out(provider.bodies[-1]) == OLD
