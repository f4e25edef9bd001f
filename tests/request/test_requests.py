"""Requests: what is handed out is recorded, usage belongs to it, what had to be shrunk stays shrunk, and one that the
provider refused as too long is made smaller."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from contextstash.stash import Stash
from contextstash.tokenizer import count_with
from contextstash_storage.records import Event, Native, Request
from tests.support.provider_rules import violations
from tests.support.stashes import (
    SESSION,
    all_handles,
    as_bytes,
    history,
    reply,
    results,
    rounds,
    stash_at,
    user,
    whole_output,
)

WINDOW = 32_000


def asks(text: str) -> Native:
    return {"role": "user", "content": text}


def calls(*ids: str) -> Native:
    return {"role": "assistant", "content": [{"type": "tool_use", "id": i, "name": "read", "input": {}} for i in ids]}


def outputs_of(ids: list[str], lines: int) -> Native:
    texts = ["\n".join(f"{name} line {line} of a long file" for line in range(lines)) for name in ids]
    blocks = [{"type": "tool_result", "tool_use_id": i, "content": text} for i, text in zip(ids, texts, strict=True)]
    return {"role": "user", "content": blocks}


def true_tokens(messages: list[Native]) -> int:
    """The size of a request, counted by a provider of our own."""
    return count_with("o200k_base")(json.dumps(messages).replace("\\n", "\n"))


async def record_outputs(stash: Stash, lines: int = 900) -> None:
    """Three large outputs in one message, which do not fit together."""
    ids = ["toolu_000000000001", "toolu_000000000002", "toolu_000000000003"]
    natives = [asks("go"), calls(*ids), outputs_of(ids, lines)]
    await stash.record_messages(natives, session_id=SESSION, format="anthropic", model="gpt-5.4")


async def turn(stash: Stash, number: int, usage: dict[str, int], **arguments: Any) -> None:
    call_id = f"toolu_9999999999{number:02}"
    await stash.record_messages([calls(call_id)], session_id=SESSION, usage=usage, **arguments)
    await stash.record_messages([outputs_of([call_id], 3)], session_id=SESSION)


@pytest.fixture
async def roomy(tmp_path: Path, preset_with: Callable[..., str]) -> AsyncIterator[Stash]:
    """A stash in which an output is cut by nothing but the window."""
    preset = preset_with(output_share=None)
    async with stash_at(tmp_path / "s.db", window=WINDOW, output_tokens=None, preset=preset) as stash:
        yield stash


async def test_what_was_shrunk_for_one_request_stays_so_the_next_one_only_adds_and_its_usage_is_its_own(
    roomy: Stash,
) -> None:
    await record_outputs(roomy)
    before: list[Native] = []
    for number in range(4):
        context = await roomy.get_context(SESSION)
        true = true_tokens(context.messages)
        assert context.fits
        assert abs(context.tokens - true) < 0.05 * true or context.tokens >= true
        assert true < WINDOW
        assert as_bytes(context.messages[: len(before)]) == as_bytes(before)
        before = context.messages
        await turn(roomy, number, {"input_tokens": true, "output_tokens": 20})
    [text] = {len(await whole_output(roomy, handle)) for handle in (await all_handles(roomy))[:3]}
    assert text == len("\n".join(f"toolu_000000000001 line {line} of a long file" for line in range(900)))


def _said(text: str) -> Native:
    return {"role": "assistant", "content": text}


async def test_every_output_can_be_cut_the_newest_and_those_that_are_cut_already_too(roomy: Stash) -> None:
    await record_outputs(roomy, lines=2_500)
    for budget in (20_000, 5_000, 1_500, 400):
        context = await roomy.get_context(SESSION, budget=budget)
        assert context.fits
        assert context.tokens <= budget
        assert violations("anthropic", context.messages) == []
    assert len(await whole_output(roomy, (await all_handles(roomy))[0])) > 90_000


async def test_a_list_has_one_figure_also_if_calls_without_results_are_left_out(roomy: Stash) -> None:
    asked = [asks(f"{number} " + "word " * 2_000) for number in range(48)]
    natives = [each for place, ask in enumerate(asked) for each in (ask, calls(f"toolu_{place}a", f"toolu_{place}b"))]
    await roomy.record_messages([*natives, asks("go on")], session_id=SESSION, format="anthropic", model="gpt-5.4")
    first, again = [await roomy.get_context(SESSION) for _ in range(2)]
    assert first.left_out is not None
    assert as_bytes(first.messages) == as_bytes(again.messages)
    assert first.tokens == again.tokens


async def test_usage_can_come_after_its_reply(stash: Stash) -> None:
    await stash.get_context(SESSION, messages=[asks("go")], format="anthropic")
    await stash.record_messages([_said("one"), asks("on")], session_id=SESSION)
    await stash.get_context(SESSION, usage={"input_tokens": 700, "output_tokens": 3})
    newest, oldest = await stash.store.read_log(SESSION, Request, newest=True, limit=10)
    assert newest.usage is None
    assert oldest.usage is not None
    assert oldest.usage.prompt_tokens == 700
    assert 700 < (await stash.estimate_context(SESSION)).tokens < 740


async def test_reading_the_context_records_nothing(roomy: Stash) -> None:
    await record_outputs(roomy, lines=2_500)
    context = await roomy.read_context(SESSION, budget=3_000)
    assert context.fits
    assert context.request_id is None
    assert await roomy.store.read_log(SESSION, Request, newest=True, limit=10) == []
    assert (await roomy.estimate_context(SESSION)).tokens > 60_000


@pytest.mark.parametrize("lines", [500, 525, 575])
async def test_a_count_that_may_be_too_low_is_not_taken_to_the_last_token(roomy: Stash, lines: int) -> None:
    await roomy.record_messages([asks("go")], session_id=SESSION, format="anthropic", model="claude-sonnet-4-5")
    first = await roomy.get_context(SESSION)
    usage = {"input_tokens": first.tokens, "output_tokens": 30}
    ids = ["toolu_000000000001", "toolu_000000000002", "toolu_000000000003"]
    await roomy.record_messages([calls(*ids)], session_id=SESSION, usage=usage)
    await roomy.record_messages([outputs_of(ids, lines)], session_id=SESSION)
    context = await roomy.get_context(SESSION)
    assert context.fits
    assert context.tokens + 0.07 * (context.tokens - first.tokens) <= context.budget


TOO_LONG = "prompt is too long: 27431 tokens > 20000 maximum"


async def recorded(stash: Stash, results: int = 20) -> list[dict[str, Any]]:
    natives = [user(400), *rounds([4_000] * results), reply(40), user(400)]
    await stash.record_messages(natives, whole=True, session_id=SESSION)
    return natives


async def test_a_refusal_is_recovered_from_once_with_what_to_send(stash: Stash) -> None:
    natives = await recorded(stash)
    answer = await stash.recover_context(SESSION, error=f"Error code: 400 - {{'message': '{TOO_LONG}'}}")
    assert (answer.recovered, answer.limit, answer.prompt_tokens) == (True, 20_000, 27_431)
    assert answer.tokens_before == 27_431
    assert answer.context is not None
    assert answer.context.tokens <= answer.context.budget < 20_000
    assert violations("openai-chat", answer.context.messages) == []
    assert results(answer.context.messages)[-2:] == results(natives)[-2:]
    estimate = await stash.estimate_context(SESSION)
    assert estimate.window == 20_000
    assert estimate.tokens == answer.tokens_after
    assert as_bytes(await history(stash)) == as_bytes(natives)
    events = await stash.store.read_log(SESSION, Event)
    assert events[-1].kind == "recovery"
    assert (events[-1].tokens_before, events[-1].tokens_after) == (27_431, estimate.tokens)


async def test_a_second_recovery_names_what_fills_the_window(stash: Stash) -> None:
    natives = await recorded(stash)
    assert (await stash.recover_context(SESSION, error=TOO_LONG)).recovered
    again = await stash.recover_context(SESSION, error=TOO_LONG)
    assert (again.recovered, again.context) == (False, None)
    assert "cannot be made smaller" in again.reason
    assert max(again.breakdown or {}, key=(again.breakdown or {}).__getitem__) == "tool_results"
    await stash.record_messages([*natives, reply(80)], whole=True, session_id=SESSION)
    assert (await stash.recover_context(SESSION, error=TOO_LONG)).context is not None


async def test_a_request_that_was_refused_after_a_recovery_too_is_made_smaller_again(stash: Stash) -> None:
    await recorded(stash)
    first = await stash.recover_context(SESSION, error=TOO_LONG)
    again = await stash.recover_context(SESSION, error="prompt is too long: 20500 tokens > 20000 maximum")
    assert again.recovered
    assert again.context is not None
    assert first.context is not None
    assert len(as_bytes(again.context.messages)) < len(as_bytes(first.context.messages))


@pytest.mark.parametrize("pin", [[], ["/src/a8.py"]])
async def test_what_has_room_in_a_larger_window_stays_as_it_is(tmp_path: Path, pin: list[str]) -> None:
    """Something is left out, and since then the window is almost empty."""
    talk = [asks("Fix it. " + "word " * 900), {"role": "assistant", "content": "word " * 900}, asks("Go on.")]
    talk += [{"role": "assistant", "content": "word " * 1_600}, asks("And on.")]
    async with stash_at(tmp_path / "s.db", window=4_000) as stash:
        await stash.record_messages(talk, session_id=SESSION, format="anthropic", model="claude-sonnet-4-5")
        assert (await stash.get_context(SESSION)).left_out is not None
        await stash.configure_session(SESSION, settings={"window": 80_000}, pin=pin)
        for number in range(1, 9):
            await stash.record_messages([calls(f"c{number}"), outputs_of([f"c{number}"], 600)], session_id=SESSION)
        first = await stash.get_context(SESSION)
        for _ in range(3):
            again = await stash.get_context(SESSION)
            assert again.done is None
            assert as_bytes(again.messages) == as_bytes(first.messages)
