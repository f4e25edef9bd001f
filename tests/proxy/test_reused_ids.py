"""Some models count their calls in each turn: an id says which call it is only together with its place."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from contextstash.clients.follow import ingest
from tests.support.caching_provider import CachingProvider
from tests.support.proxies import ID, Clock, RunningProxy, play, request_of, running_proxy
from tests.support.stashes import stash_at

TEXT = "".join(f"line {number} of the file\n" for number in range(500))


def read(text: str) -> list[dict[str, Any]]:
    """A turn that reads a file, with the same id as every other one."""
    call = {"type": "tool_use", "id": "call_0", "name": "Read", "input": {"file_path": "/a"}}
    result = {"type": "tool_result", "tool_use_id": "call_0", "content": text}
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]


def reads(count: int, *, equal: bool) -> list[dict[str, Any]]:
    turns = [read(TEXT if equal else f"{number}: {TEXT}") for number in range(count)]
    return [{"role": "user", "content": "Watch the file."}, *(message for turn in turns for message in turn)]


def hidden(body: dict[str, Any]) -> list[int]:
    """The messages that were sent as placeholders."""
    return [place for place, each in enumerate(body["messages"]) if "get_archived_output, handle" in json.dumps(each)]


@pytest.mark.parametrize("equal", [True, False])
def test_a_fresh_read_with_a_used_id_is_shown_and_old_ones_leave(
    provider: CachingProvider, proxy: RunningProxy, clock: Clock, equal: bool
) -> None:
    messages = reads(10, equal=equal)
    play(proxy, clock, messages[:-2])
    clock.now += 400
    proxy.send(request_of(messages))
    old = hidden(provider.bodies[-1])
    assert old
    assert old[-1] < len(messages) - 1
    for number in range(3):
        messages = [*messages, *read(TEXT if equal else f"again {number}: {TEXT}")]
        clock.now += 10
        proxy.send(request_of(messages))
        assert hidden(provider.bodies[-1]) == old


@pytest.mark.parametrize("restarted", [True, False])
def test_the_only_read_that_is_made_again_after_it_was_pruned_is_shown(
    provider: CachingProvider, clock: Clock, tmp_path: Path, restarted: bool
) -> None:
    """Also if the client has left the old one out since."""
    first = [{"role": "user", "content": "Read it."}, *read(TEXT * 4)]
    end = [{"role": "assistant", "content": "Read."}, {"role": "user", "content": "Go on."}]
    with running_proxy(provider.url, tmp_path / "stash.db", clock, keep_tokens=1_000) as proxy:
        proxy.send(request_of(first))
        clock.now += 400
        proxy.send(request_of([*first, *end]))
        clock.now += 400
        proxy.send(request_of([*first, *end, *end]))
        assert hidden(provider.bodies[-1]) == [2]
        if not restarted:
            check_fresh(provider, proxy, [*first, *end, *end])
    if restarted:
        with running_proxy(provider.url, tmp_path / "stash.db", clock, keep_tokens=1_000) as proxy:
            check_fresh(provider, proxy, [*first, *end, *end])


def check_fresh(provider: CachingProvider, proxy: RunningProxy, messages: list[dict[str, Any]]) -> None:
    again = [*messages, *read(TEXT * 4)]
    proxy.send(request_of(again))
    assert hidden(provider.bodies[-1]) == [2]
    shorter = [messages[0], {"role": "assistant", "content": "Read."}, {"role": "user", "content": "Go on."}]
    proxy.send(request_of([*shorter, *read(TEXT * 4)]))
    assert hidden(provider.bodies[-1]) == []


def test_placeholders_stay_if_the_client_changes_an_early_message_also_after_a_restart(
    provider: CachingProvider, clock: Clock, tmp_path: Path
) -> None:
    from tests.support.proxies import OLD, placeholders, prune_cold, session, turn

    messages = session(8)
    changed = [{"role": "user", "content": "Fix the other bug."}, *messages[1:]]
    with running_proxy(provider.url, tmp_path / "stash.db", clock) as proxy:
        prune_cold(proxy, clock, messages)
        proxy.send(request_of(changed))
        assert placeholders(provider.bodies[-1]) == OLD
        changed += turn(20, "more")
        assert proxy.send(request_of(changed)).headers["x-contextstash-session"] == ID
        assert placeholders(provider.bodies[-1]) == OLD
    with running_proxy(provider.url, tmp_path / "stash.db", clock) as proxy:
        proxy.send(request_of([*changed, *turn(21, "more")]))
        assert placeholders(provider.bodies[-1]) == OLD


@pytest.mark.parametrize("compacted", [True, False])
def test_a_fresh_read_with_a_used_id_is_shown_also_if_the_session_is_followed(
    provider: CachingProvider, clock: Clock, tmp_path: Path, compacted: bool
) -> None:
    """The client writes its transcript after the request. After its own compaction the old result is gone."""
    first = [{"role": "user", "content": "Read it."}, *read(TEXT * 4)]
    end = [{"role": "assistant", "content": "Read."}, {"role": "user", "content": "Go on."}]
    database, transcript = tmp_path / "stash.db", tmp_path / f"{ID}.jsonl"
    follow(database, transcript, first[:1])
    with running_proxy(provider.url, database, clock, keep_tokens=1_000) as proxy:
        for messages in (first[:1], first, [*first, *end], [*first, *end, *end]):
            write_transcript(transcript, messages)
            clock.now += 400
            proxy.send(request_of(messages))
        assert hidden(provider.bodies[-1]) == [2]
        begin = [messages[0], *end] if compacted else messages
        proxy.send(request_of([*begin, *read(TEXT * 4)]))
        assert hidden(provider.bodies[-1]) == ([] if compacted else [2])


def write_transcript(path: Path, messages: list[dict[str, Any]]) -> None:
    ids = ["", *(f"00000000-0000-4000-8000-{number:012}" for number in range(len(messages)))]
    lines = [
        {"type": each["role"], "uuid": own, "parentUuid": before or None, "sessionId": ID, "message": each}
        | {"timestamp": f"2026-11-20T10:00:{place:02}.000Z"}
        for place, (before, own, each) in enumerate(zip(ids, ids[1:], messages, strict=False))
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def follow(database: Path, transcript: Path, messages: list[dict[str, Any]]) -> None:
    async def run() -> None:
        async with stash_at(database) as stash:
            await ingest(stash, transcript)

    write_transcript(transcript, messages)
    asyncio.run(run())
