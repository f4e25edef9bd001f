"""Thinking that an edit invalidates: stripped, dropped by the provider, or the edit waits; a restore brings it back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from contextstash.session.edit import DROP_REQUEST
from contextstash.stash import Stash
from tests.support.stashes import SESSION, as_bytes, history, stash_at, valid_view, view

MODEL = "claude-fable-5-1"


def thinking(number: int) -> dict[str, Any]:
    return {"type": "thinking", "thinking": f"thought {number} " * 20, "signature": f"sig{number}"}


def turn(number: int) -> list[dict[str, Any]]:
    """A question, a thoughtful tool call, its large result, and a thoughtful answer."""
    call = {"type": "tool_use", "id": f"toolu_{number}", "name": "bash", "input": {"command": f"make {number}"}}
    output = "".join(f"{line}: built {number}\n" for line in range(300))
    return [
        {"role": "user", "content": f"Question {number}?"},
        {"role": "assistant", "content": [thinking(2 * number), call]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": output}]},
        {"role": "assistant", "content": [thinking(2 * number + 1), {"type": "text", "text": f"Answer {number}."}]},
    ]


def turns(count: int) -> list[dict[str, Any]]:
    return [message for number in range(count) for message in turn(number)]


def thoughts(messages: list[dict[str, Any]]) -> list[str]:
    """The signatures of the thinking shown, in order."""
    return [
        block["signature"]
        for message in messages
        if isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == "thinking"
    ]


async def recorded(stash: Stash, natives: list[dict[str, Any]], model: str = MODEL) -> None:
    await stash.record_messages(natives, whole=True, session_id=SESSION, format="anthropic", model=model)


async def test_a_prune_strips_the_thinking_after_it_and_a_restore_brings_it_back_exactly(stash: Stash) -> None:
    await recorded(stash, turns(4))
    result = await stash.prune_tool_outputs(SESSION, keep_last=2)
    estimate = await stash.estimate_context(SESSION)
    assert "The thinking of 7 later messages leaves with them." in result.reason
    assert thoughts(await valid_view(stash, "anthropic")) == ["sig0"]
    assert sum(estimate.breakdown.values()) == estimate.tokens
    await stash.restore_outputs([each.handle for each in result.archived], session_id=SESSION)
    assert as_bytes(await view(stash)) == as_bytes(turns(4))


async def test_thinking_written_after_a_prune_stays_until_the_prune_is_undone(stash: Stash) -> None:
    await recorded(stash, turns(3))
    result = await stash.prune_tool_outputs(SESSION, keep_last=1)
    await recorded(stash, turns(4))
    assert thoughts(await valid_view(stash, "anthropic")) == ["sig0", "sig6", "sig7"]
    await stash.restore_outputs([each.handle for each in result.archived], session_id=SESSION)
    assert thoughts(await valid_view(stash, "anthropic")) == [f"sig{number}" for number in range(6)]
    assert as_bytes(await history(stash)) == as_bytes(turns(4))


async def test_a_prune_waits_for_the_end_of_a_tool_loop(stash: Stash) -> None:
    await recorded(stash, turns(4)[:-1])
    result = await stash.prune_tool_outputs(SESSION, keep_last=1)
    assert result.archived == []
    assert "still open" in result.reason
    await recorded(stash, turns(4))
    assert (await stash.prune_tool_outputs(SESSION, keep_last=1)).archived


async def test_an_output_that_bound_thinking_of_an_open_loop_follows_is_not_cut(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "s.db", output_tokens=300) as stash:
        await recorded(stash, [*turns(2), *turn(2)[1:3]])  # the user has said nothing since: the loop is still open
        shown = await valid_view(stash, "anthropic")
        first, second, third = (len(str(shown[place])) for place in (2, 6, -1))
        assert third < first == second


async def test_a_prune_does_not_wait_if_the_window_is_nearly_full(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "d.db", window=10_000, output_reserve=0) as stash:
        await recorded(stash, turns(6)[:-1])
        assert (await stash.estimate_context(SESSION)).level in ("critical", "overflow")
        result = await stash.prune_tool_outputs(SESSION, keep_last=1)
        context = await stash.get_context(SESSION)
    assert "leaves with them" in result.reason
    assert len(thoughts(context.messages)) == 1


async def test_behind_a_summary_the_provider_is_asked_to_drop_thinking_that_it_does_not_accept(stash: Stash) -> None:
    await recorded(stash, turns(6))
    assert (await stash.get_context(SESSION)).request is None
    assert (await stash.compact_session(SESSION, strategy="extractive")).compacted
    await recorded(stash, turns(8))
    context = await stash.get_context(SESSION)
    assert context.request == DROP_REQUEST
    assert DROP_REQUEST["thinking"] == {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    assert DROP_REQUEST["betas"] == ["thinking-binding-controls-2026-08-01"]
    assert len(thoughts(context.messages)) == 4


async def test_models_that_do_not_verify_thinking_keep_it(stash: Stash) -> None:
    await recorded(stash, turns(4), model="claude-sonnet-4-5")
    result = await stash.prune_tool_outputs(SESSION, keep_last=2)
    assert "thinking" not in result.reason
    assert len(thoughts(await valid_view(stash, "anthropic"))) == 8
