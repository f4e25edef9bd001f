"""Models that bind their reasoning to what stands before it: the provider never has to drop any."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from contextstash import open_stash
from tests.support.effort import THOROUGH
from tests.support.plain_loops import run_loop
from tests.support.strict_provider import Body, StrictProvider, strict_provider

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
