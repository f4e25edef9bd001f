"""Requests: what is handed out is recorded, usage belongs to it, and what had to be shrunk stays shrunk."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from contextstash.stash import Stash
from contextstash.tokenizer import count_with
from contextstash_storage.records import Native, Request
from tests.support.provider_rules import violations
from tests.support.stashes import SESSION, all_handles, as_bytes, history, stash_at, whole_output

WINDOW = 32_000
TOOLS = [{"name": f"tool_{place}", "description": "Reads a file. " * 20, "input_schema": {}} for place in range(10)]


def user(text: str) -> Native:
    return {"role": "user", "content": text}


def calls(*ids: str) -> Native:
    return {"role": "assistant", "content": [{"type": "tool_use", "id": i, "name": "read", "input": {}} for i in ids]}


def results(ids: list[str], lines: int) -> Native:
    texts = ["\n".join(f"{name} line {line} of a long file" for line in range(lines)) for name in ids]
    blocks = [{"type": "tool_result", "tool_use_id": i, "content": text} for i, text in zip(ids, texts, strict=True)]
    return {"role": "user", "content": blocks}


def true_tokens(messages: list[Native]) -> int:
    """The size of a request, counted by a provider of our own."""
    return count_with("o200k_base")(json.dumps(messages).replace("\\n", "\n"))


async def recorded(stash: Stash, lines: int = 900) -> None:
    """Three large outputs in one message, which do not fit together."""
    ids = ["toolu_000000000001", "toolu_000000000002", "toolu_000000000003"]
    natives = [user("go"), calls(*ids), results(ids, lines)]
    await stash.record_messages(natives, session_id=SESSION, format="anthropic", model="gpt-5.4")


async def turn(stash: Stash, number: int, usage: dict[str, int], **arguments: Any) -> None:
    call_id = f"toolu_9999999999{number:02}"
    await stash.record_messages([calls(call_id)], session_id=SESSION, usage=usage, **arguments)
    await stash.record_messages([results([call_id], 3)], session_id=SESSION)


@pytest.fixture
async def roomy(tmp_path: Path, preset_with: Callable[..., str]) -> AsyncIterator[Stash]:
    """A stash in which an output is cut by nothing but the window."""
    preset = preset_with(output_share=None)
    async with stash_at(tmp_path / "s.db", window=WINDOW, output_tokens=None, preset=preset) as stash:
        yield stash


async def test_usage_of_a_request_that_was_shrunk_is_not_taken_for_that_of_the_view(roomy: Stash) -> None:
    await recorded(roomy)
    for number in range(4):
        context = await roomy.get_context(SESSION)
        true = true_tokens(context.messages)
        assert context.fits
        assert abs(context.tokens - true) < 0.05 * true or context.tokens >= true
        assert true < WINDOW
        await turn(roomy, number, {"input_tokens": true, "output_tokens": 20})


async def test_what_was_shrunk_for_one_request_stays_so_and_the_next_one_only_adds(roomy: Stash) -> None:
    await recorded(roomy)
    before = (await roomy.get_context(SESSION)).messages
    for number in range(3):
        await turn(roomy, number, {"input_tokens": true_tokens(before), "output_tokens": 20})
        after = (await roomy.get_context(SESSION)).messages
        assert as_bytes(after[: len(before)]) == as_bytes(before)
        before = after
    [text] = {len(await whole_output(roomy, handle)) for handle in (await all_handles(roomy))[:3]}
    assert text == len("\n".join(f"toolu_000000000001 line {line} of a long file" for line in range(900)))


async def test_messages_that_were_left_out_stay_left_out(tmp_path: Path) -> None:
    talk = [user(f"question {n}: " + "word " * 300) if n % 2 == 0 else _said(f"answer {n}") for n in range(41)]
    async with stash_at(tmp_path / "l.db", window=4_000) as stash:
        await stash.record_messages(talk, session_id=SESSION, format="anthropic")
        first = await stash.get_context(SESSION)
        await stash.record_messages([_said("more"), user("and?")], session_id=SESSION)
        second = await stash.get_context(SESSION)
        assert first.left_out is not None
        assert first.left_out == second.left_out
        assert second.messages[: len(first.messages)] == first.messages
        assert second.fits
        assert await history(stash) == [*talk, _said("more"), user("and?")]


def _said(text: str) -> Native:
    return {"role": "assistant", "content": text}


async def test_every_output_can_be_cut_the_newest_and_those_that_are_cut_already_too(roomy: Stash) -> None:
    await recorded(roomy, lines=2_500)
    for budget in (20_000, 5_000, 1_500, 400):
        context = await roomy.get_context(SESSION, budget=budget)
        assert context.fits
        assert context.tokens <= budget
        assert violations("anthropic", context.messages) == []
    assert len(await whole_output(roomy, (await all_handles(roomy))[0])) > 90_000


async def test_system_prompt_and_tools_are_counted_and_named_if_they_alone_do_not_fit(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "s.db", window=WINDOW) as stash:
        context = await stash.get_context(
            SESSION,
            messages=[user("go")],
            system="Be careful. " * 500,
            tools=TOOLS,
            format="anthropic",
            model="gpt-5.4",
        )
        assert context.system == "Be careful. " * 500
        assert context.tokens > 2_000
        estimate = await stash.estimate_context(SESSION)
        assert estimate.tokens == context.tokens
        assert {"system", "tools"} < set(estimate.breakdown)
        full = await stash.get_context(SESSION, tools=TOOLS * 60)
        assert not full.fits
        assert full.reason is not None
        assert "the tool definitions about" in full.reason


async def test_usage_can_come_after_its_reply(stash: Stash) -> None:
    await stash.get_context(SESSION, messages=[user("go")], format="anthropic")
    await stash.record_messages([_said("one"), user("on")], session_id=SESSION)
    await stash.get_context(SESSION, usage={"input_tokens": 700, "output_tokens": 3})
    newest, oldest = await stash.store.read_log(SESSION, Request, newest=True, limit=10)
    assert newest.usage is None
    assert oldest.usage is not None
    assert oldest.usage.prompt_tokens == 700
    assert 700 < (await stash.estimate_context(SESSION)).tokens < 740


async def test_reading_the_context_records_nothing(roomy: Stash) -> None:
    await recorded(roomy, lines=2_500)
    context = await roomy.read_context(SESSION, budget=3_000)
    assert context.fits
    assert context.request_id is None
    assert await roomy.store.read_log(SESSION, Request, newest=True, limit=10) == []
    assert (await roomy.estimate_context(SESSION)).tokens > 60_000


@pytest.mark.parametrize("lines", [500, 525, 575])
async def test_a_count_that_may_be_too_low_is_not_taken_to_the_last_token(roomy: Stash, lines: int) -> None:
    await roomy.record_messages([user("go")], session_id=SESSION, format="anthropic", model="claude-sonnet-4-5")
    first = await roomy.get_context(SESSION)
    usage = {"input_tokens": first.tokens, "output_tokens": 30}
    ids = ["toolu_000000000001", "toolu_000000000002", "toolu_000000000003"]
    await roomy.record_messages([calls(*ids)], session_id=SESSION, usage=usage)
    await roomy.record_messages([results(ids, lines)], session_id=SESSION)
    context = await roomy.get_context(SESSION)
    assert context.fits
    assert context.tokens + 0.07 * (context.tokens - first.tokens) <= context.budget
