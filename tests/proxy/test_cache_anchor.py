"""The proxy's own breakpoint: what has been pruned stays in the provider's cache while later outputs leave."""

from __future__ import annotations

import json
from typing import Any

from contextstash.formats.breakpoints import MAX_BREAKPOINTS, count_breakpoints
from tests.support.caching_provider import CachingProvider
from tests.support.proxies import Clock, RunningProxy, placeholders, play, request_of, session, turn

MARK = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}


def breakpoints(body: dict[str, Any]) -> int:
    blocks = [
        block for message in body["messages"] if isinstance(message["content"], list) for block in message["content"]
    ]
    return count_breakpoints([*body["system"], *blocks])


def pruned_when_cold(proxy: RunningProxy, clock: Clock, **fields: Any) -> list[dict[str, Any]]:
    """A conversation of which old outputs have left."""
    messages = session(8)
    messages[0] = {"role": "user", "content": "Fix the bug. " * 3_000}
    play(proxy, clock, messages[:-2], **fields)
    clock.now += 4_000
    play(proxy, clock, messages, first=len(messages), **fields)
    return messages


def test_the_last_placeholder_ends_the_cache(provider: CachingProvider, proxy: RunningProxy, clock: Clock) -> None:
    messages = pruned_when_cold(proxy, clock)
    last = placeholders(provider.bodies[-1])[-1]
    marked = [
        block
        for message in provider.bodies[-1]["messages"][:-1]
        for block in message["content"]
        if isinstance(block, dict) and "cache_control" in block
    ]
    assert [block["tool_use_id"] for block in marked] == [last]
    play(proxy, clock, messages + turn(8, "short"), first=len(messages) + 2)
    assert provider.usage[-1]["cache_creation_input_tokens"] < 200


def test_a_later_prune_reads_what_stands_in_front_of_the_former_one_from_the_cache(
    provider: CachingProvider, proxy: RunningProxy, clock: Clock
) -> None:
    messages = pruned_when_cold(proxy, clock)
    for number in range(100, 130):
        messages += turn(number, f"{number} " * 2_000)
    play(proxy, clock, messages, first=19)
    counts = [len(placeholders(body)) for body in provider.bodies]
    second = next(place for place in range(9, len(counts)) if counts[place] > counts[8])
    in_front = len(json.dumps(provider.bodies[8]["messages"][:14])) / 3.4
    assert provider.usage[second]["cache_read_input_tokens"] > 0.8 * in_front > 1_000
    assert provider.usage[second + 1]["cache_creation_input_tokens"] < 3_000
    assert max(breakpoints(body) for body in provider.bodies) == 3


def test_a_request_never_gets_more_breakpoints_than_the_api_accepts(
    provider: CachingProvider, proxy: RunningProxy, clock: Clock
) -> None:
    system = [
        {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}} for text in ("You.", "Are.", "An.")
    ]
    pruned_when_cold(proxy, clock, system=system)
    assert placeholders(provider.bodies[-1])
    assert breakpoints(provider.bodies[-1]) == MAX_BREAKPOINTS


def test_the_breakpoint_lives_as_long_as_the_clients(
    provider: CachingProvider, proxy: RunningProxy, clock: Clock
) -> None:
    messages = session(8)
    messages[-1]["content"][0] |= MARK
    body = request_of(messages, system=[{"type": "text", "text": "You.", **MARK}])
    body["messages"][-1] = messages[-1]
    proxy.send(body)
    clock.now += 4_000
    proxy.send(body)
    marks = [
        block.get("cache_control") for message in provider.bodies[-1]["messages"][1:] for block in message["content"]
    ]
    assert [mark for mark in marks if mark] == [MARK["cache_control"]] * 2


def test_an_unedited_request_gets_no_breakpoint(provider: CachingProvider, proxy: RunningProxy, clock: Clock) -> None:
    body = json.dumps(request_of(session(3))).encode()
    proxy.send(body)
    assert provider.asked[-1].body == body
