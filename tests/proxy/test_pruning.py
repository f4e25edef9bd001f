"""When the proxy prunes, and what the provider's cache and the bill see of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from contextstash.stash import Stash
from tests.support.proxies import (
    ID,
    OLD,
    READ,
    CachingProvider,
    Clock,
    Refusal,
    RunningProxy,
    in_stash,
    placeholders,
    play,
    prune_cold,
    request_of,
    running_proxy,
    session,
    turn,
)


def test_a_warm_cache_is_never_broken(proxy: RunningProxy) -> None:
    play(proxy, session(40))
    assert [placeholders(body) for body in proxy.provider.bodies] == [[]] * 41


def test_old_outputs_leave_when_the_cache_is_cold_and_stay_away_when_it_is_warm_again(proxy: RunningProxy) -> None:
    messages = session(8)
    prune_cold(proxy, messages)
    pruned = placeholders(proxy.provider.bodies[-1])
    assert pruned == OLD
    messages += turn(8, "short")
    play(proxy, messages, first=len(messages))
    assert placeholders(proxy.provider.bodies[-1]) == pruned
    assert proxy.provider.usage[-1]["cache_creation_input_tokens"] < 200


def test_edits_hold_in_a_new_process(provider: CachingProvider, clock: Clock, tmp_path: Path) -> None:
    messages = session(8)
    with running_proxy(provider, tmp_path / "stash.db", clock) as first:
        play(first, messages[:-2])
        clock.now += 400
        play(first, messages, first=len(messages))
    messages += turn(8, "short")
    with running_proxy(provider, tmp_path / "stash.db", clock) as second:
        play(second, messages, first=len(messages))
    before, after = provider.asked[-2].body, provider.asked[-1].body
    assert placeholders(provider.bodies[-1]) == OLD
    assert before[: len(before) // 2] == after[: len(before) // 2]
    assert provider.usage[-1]["cache_creation_input_tokens"] < 200


def test_nothing_is_pruned_without_the_retrieval_tool(proxy: RunningProxy) -> None:
    messages = session(8)
    play(proxy, messages[:-2], tools=[READ])
    proxy.clock.now += 400
    play(proxy, messages, first=len(messages), tools=[READ])
    assert placeholders(proxy.provider.bodies[-1]) == []


def test_a_request_that_is_too_long_is_shrunk_and_the_client_never_sees_the_refusal(proxy: RunningProxy) -> None:
    messages = session(8)
    play(proxy, messages[:-2])
    proxy.provider.window = 20_000
    proxy.clock.now += 10
    response = proxy.send(request_of(messages))
    assert response.status_code == 200
    assert placeholders(proxy.provider.bodies[-1]) == OLD[:5]
    assert proxy.engine.faults == 0


def test_the_first_request_of_a_long_session_is_healed_too(proxy: RunningProxy) -> None:
    proxy.provider.window = 20_000
    assert proxy.send(request_of(session(8))).status_code == 200
    assert len(proxy.provider.asked) == 2


def test_a_refused_edited_request_goes_out_unedited_once_and_the_session_is_left_alone(proxy: RunningProxy) -> None:
    messages = session(8)
    play(proxy, messages[:-2])
    proxy.provider.refusals.append(
        Refusal(400, "messages.3: some rule", lambda body: bool(placeholders(body)), times=9)
    )
    proxy.clock.now += 400
    assert proxy.send(request_of(messages)).status_code == 200
    assert placeholders(proxy.provider.bodies[-1]) == []
    assert proxy.provider.asked[-1].body == json.dumps(request_of(messages)).encode()
    assert "status 400" in str(proxy.state(ID).left_alone)
    proxy.clock.now += 400
    proxy.send(request_of(messages + turn(8, "x")))
    assert (
        placeholders(proxy.provider.bodies[-1]),
        len(proxy.provider.refusals),
        proxy.provider.refusals[0].times,
    ) == ([], 1, 8)


def test_an_unknown_block_leaves_the_request_as_it_is(proxy: RunningProxy) -> None:
    messages = session(8)
    messages[0] = {"role": "user", "content": [{"type": "text", "text": "Fix."}, {"type": "hologram", "data": 1}]}
    prune_cold(proxy, messages)
    assert proxy.provider.asked[-1].body == json.dumps(request_of(messages)).encode()


def test_the_newest_read_of_a_file_under_edit_stays(proxy: RunningProxy) -> None:
    messages = session(3)
    messages += turn(50, "z" * 20_000, argument="/src/engine.py")
    messages += turn(51, "edited", tool="Edit", argument="/src/engine.py")
    for number in range(60, 64):
        messages += turn(number, f"{number}" * 10_000)
    prune_cold(proxy, messages)
    pruned = placeholders(proxy.provider.bodies[-1])
    assert "toolu_0" in pruned
    assert "toolu_50" not in pruned


def read_six_files(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The conversation after a reply that called six tools at once."""
    pairs = [turn(number, f"{number} row\n" * 1_500) for number in range(50, 56)]
    calls = [block for call, _ in pairs for block in call["content"]]
    results = [block for _, result in pairs for block in result["content"]]
    return [*messages, {"role": "assistant", "content": calls}, {"role": "user", "content": results}]


def test_results_that_no_complete_reply_follows_stay_when_a_request_is_sent_again_after_a_pause(
    proxy: RunningProxy,
) -> None:
    messages = read_six_files(session(8))
    play(proxy, messages[:-2])
    proxy.provider.broken_stream = True
    with pytest.raises(httpx2.TransportError):
        play(proxy, messages, first=len(messages))
    proxy.settle()
    proxy.provider.broken_stream = False
    proxy.clock.now += 400
    play(proxy, messages, first=len(messages))
    assert placeholders(proxy.provider.bodies[-1]) == [f"toolu_{number}" for number in range(7)]


def test_results_that_no_reply_follows_leave_if_the_request_would_be_refused_otherwise(proxy: RunningProxy) -> None:
    messages = read_six_files(session(1))
    play(proxy, messages[:-2])
    proxy.provider.window = 20_000
    assert proxy.send(request_of(messages)).status_code == 200
    assert "toolu_50" in placeholders(proxy.provider.bodies[-1])


def test_pinned_outputs_and_files_are_never_pruned(proxy: RunningProxy) -> None:
    messages = session(8)
    play(proxy, messages[:-2])

    async def pin(stash: Stash) -> None:
        outputs = await stash.store.read_outputs(ID)
        await stash.configure_session(ID, pin=["/a/1", outputs[3].handle])

    in_stash(proxy.database, pin)
    proxy.clock.now += 400
    proxy.send(request_of(messages))
    stay = {"toolu_1", "toolu_3"}
    assert placeholders(proxy.provider.bodies[-1]) == [name for name in OLD if name not in stay]
    proxy.provider.window = 5_000
    proxy.send(request_of(messages))
    assert not stay & set(placeholders(proxy.provider.bodies[-1]))
