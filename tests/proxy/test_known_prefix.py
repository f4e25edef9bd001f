"""What the proxy knows of a request's beginning saves time, and changes nothing that is sent."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextstash.proxy.conversations import Conversations
from contextstash.proxy.edits import Prepared, ProxyOptions
from contextstash.proxy.engine import Engine
from contextstash.stash import Stash
from contextstash_storage.records import Usage
from contextstash_storage.sqlite import open_sqlite
from tests.support.effort import examples
from tests.support.proxies import ID, Clock, request_of, turn

Step = tuple[str, int]

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["turn", "turn", "turn", "pause", "rewind", "fork", "edit", "mark", "restart", "again"]),
        st.integers(0, 7),
    ),
    min_size=6,
    max_size=11,
)


def messages_after(messages: list[dict[str, Any]], step: Step, number: int) -> list[dict[str, Any]]:
    """The client's messages after a step: one turn more, on the same branch, an older one or another, or with another
    text somewhere."""
    kind, at = step
    place = 2 * (at % (len(messages) // 2)) if len(messages) > 1 else 0
    if kind in ("rewind", "fork"):
        messages = messages[: place + 1]
    if kind == "edit" and place:
        old = messages[place]["content"][0]
        messages = [*messages[:place], {**messages[place], "content": [{**old, "content": old["content"] + "!"}]}]
    if kind == "mark" and place:
        old = messages[place]["content"][0]
        marked = {**old, "cache_control": {"type": "ephemeral"}}
        messages = [*messages[:place], {**messages[place], "content": [marked]}, *messages[place + 1 :]]
    if kind in ("again", "restart", "pause", "mark"):
        return messages
    text = "".join(f'line {number if kind == "fork" else len(messages)}-{k}: a "quoted" text\n' for k in range(400))
    return [*messages, *turn(len(messages), text)]


async def sent(folder: Path, steps: list[Step]) -> list[bytes]:
    """The bodies that the proxy sends for these steps."""
    clock, messages, bodies, before = Clock(), [{"role": "user", "content": "Fix the bug."}], [], 0
    stash = Stash(await open_sqlite(folder / "stash.db"))
    options = ProxyOptions(keep_tokens=3_000, step_seconds=30.0)
    engine = Engine(stash, options, clock)
    for number, step in enumerate(steps):
        clock.now += 400 if step[0] == "pause" else 10
        if step[0] == "restart":
            await stash.close()
            stash = Stash(await open_sqlite(folder / "stash.db"))
            engine = Engine(stash, options, clock)
        messages = messages_after(messages, step, number)
        body = json.dumps(request_of(messages), ensure_ascii=False).encode()
        prepared = await engine.prepare("anthropic", [(b"x-claude-code-session-id", ID.encode())], body)
        assert isinstance(prepared, Prepared)
        assert engine.faults == 0
        bodies.append(prepared.body)
        size, before = len(prepared.body), min(before, len(prepared.body))
        engine.finish(prepared, Usage(prompt_tokens=size // 3, cached_tokens=before // 3, completion_tokens=1))
        before = size
        await engine.idle()
    await stash.close()
    return bodies


def sent_with_new_database(steps: list[Step]) -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(sent(Path(folder), steps))


@settings(max_examples=examples(50))
@given(STEPS)
def test_requests_are_edited_the_same_if_each_is_read_from_its_beginning(steps: list[Step]) -> None:
    with_known = sent_with_new_database(steps)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Conversations, "likely", lambda self, body: None)
        assert sent_with_new_database(steps) == with_known


def test_these_requests_are_edited() -> None:
    steps = [("turn", 0)] * 6 + [("pause", 0), ("turn", 0), ("fork", 3), ("turn", 0), ("pause", 0)]
    bodies = sent_with_new_database(steps)
    assert b"get_archived_output" in bodies[6].split(b'"system"')[0]
    assert b"get_archived_output" in bodies[-1].split(b'"system"')[0]
