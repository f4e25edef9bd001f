"""Recovery from a request that the provider refused as too long, with its real error through its real SDK."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from anthropic import AsyncAnthropic, BadRequestError

from contextstash.stash import Stash
from tests.support.provider import model_provider, refused
from tests.support.provider_rules import violations
from tests.support.stashes import SESSION, as_bytes, history, reply, results, rounds, stash_at, user

TOO_LONG = "prompt is too long: 27431 tokens > 20000 maximum"


async def refusal(messages: list[dict[str, Any]]) -> str:
    """The SDK's error if the provider refuses these messages as too long."""
    answer = refused("anthropic", TOO_LONG, 400, "invalid_request_error")
    with model_provider(answer) as provider:
        async with AsyncAnthropic(api_key="k", base_url=provider.url, max_retries=0) as client:
            with pytest.raises(BadRequestError) as raised:
                await client.messages.create(model="m", max_tokens=100, messages=messages)  # type: ignore[arg-type]
    return str(raised.value)


async def recorded(stash: Stash, results: int = 20) -> list[dict[str, Any]]:
    natives = [user(400), *rounds([4_000] * results), reply(40), user(400)]
    await stash.record_messages(natives, whole=True, session_id=SESSION)
    return natives


async def test_a_real_refusal_is_recovered_from_once_with_what_to_send(stash: Stash) -> None:
    natives = await recorded(stash)
    error = await refusal([{"role": "user", "content": "x"}])
    answer = await stash.recover_context(SESSION, error=error)
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
    events = await stash.read_events(SESSION)
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


async def test_the_tokens_that_the_provider_reports_override_a_presets_own_count(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "p.db", preset="staged") as stash:
        await recorded(stash)
        before = await stash.estimate_context(SESSION)
        answer = await stash.recover_context(SESSION, error=TOO_LONG)
        after = await stash.estimate_context(SESSION)
    assert before.tokens < 22_000
    assert answer.tokens_before == 27_431
    assert "reported usage" in after.method
