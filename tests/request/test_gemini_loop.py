"""Agent loops on Gemini's format, against a provider on loopback that refuses what Google refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.effort import THOROUGH
from tests.support.gemini_loop import (
    Ask,
    AskedTooMuchError,
    ask_rest,
    ask_sdk,
    planned,
    run_loop,
)
from tests.support.gemini_provider import Planned, gemini_provider
from tests.support.stashes import SESSION, as_bytes, history, stash_at, view

WINDOW, TURNS, SCALE = (32_000, 300, 1.0) if THOROUGH else (32_000, 10, 2.0)
"""Tokens, requests, and the factor of the outputs' sizes: the history outgrows the window several times."""

CHARACTERS_PER_TOKEN = 4

MAX_ERROR = 2.1
"""In percent, of 95 of 100 estimates after the first three. Before results were counted as quoted it was 2.8."""


async def hold_loop(path: Path, ask: Ask, named: bool) -> None:
    with gemini_provider(WINDOW, planned, named=named) as provider:
        async with stash_at(path, window=WINDOW, automatic=True) as stash:
            ran = await run_loop(stash, provider, ask, TURNS, SCALE)
            recorded = len(as_bytes(await history(stash)))
    assert (provider.refusals, ran.over) == ([], [])
    assert (ran.turns, ran.not_fitting) == (TURNS, 0)
    assert recorded > 2 * WINDOW * CHARACTERS_PER_TOKEN
    errors = sorted(map(abs, ran.errors()))
    assert errors[int(len(errors) * 0.95)] <= MAX_ERROR


@pytest.mark.parametrize("named", [True, False])
async def test_a_loop_over_the_rest_api_sends_nothing_malformed(tmp_path: Path, named: bool) -> None:
    await hold_loop(tmp_path / "s.db", ask_rest, named)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_loop_over_googles_own_sdk_sends_nothing_malformed(tmp_path: Path, stream: bool) -> None:
    await hold_loop(tmp_path / "s.db", ask_sdk(stream), named=stream)


async def test_the_provider_refuses_what_google_refuses(tmp_path: Path) -> None:
    """Otherwise the loops above would prove nothing: contents with one thing wrong are refused."""
    with gemini_provider(WINDOW, lambda _: Planned(calls=(("tool_0", {}), ("tool_1", {})))) as provider:
        go = {"role": "user", "parts": [{"text": "go"}]}
        said, _ = ask_rest(provider.url, [go])
        first, second = (part["functionCall"] for part in said["parts"])
        answers = [
            {"functionResponse": {"id": call["id"], "name": call["name"], "response": {}}} for call in (first, second)
        ]
        unsigned = {**said, "parts": [{"functionCall": first}, said["parts"][1]]}
        for wrong in (
            [go, said],
            [go, said, {"role": "user", "parts": answers[:1]}],
            [go, said, {"role": "user", "parts": answers[:1]}, {"role": "user", "parts": answers[1:]}],
            [go, unsigned, {"role": "user", "parts": answers}],
            [said, {"role": "user", "parts": answers}],
            [go, {**said, "usageMetadata": {}}, {"role": "user", "parts": answers}],
            [{"role": "user", "parts": []}],
        ):
            with pytest.raises(AskedTooMuchError):
                ask_rest(provider.url, wrong)
        assert len(set(provider.refusals)) > 4
        ask_rest(provider.url, [go, said, {"role": "user", "parts": answers}])


async def test_an_interrupted_loop_goes_on(tmp_path: Path) -> None:
    """The program died while its calls ran: the next request answers them, and the model's signature is still there."""
    with gemini_provider(WINDOW, planned, named=False) as provider:
        async with stash_at(tmp_path / "s.db", window=WINDOW) as stash:
            go = {"role": "user", "parts": [{"text": "go"}]}
            said, _ = ask_rest(provider.url, [go])
            await stash.record_messages([go, said], session_id=SESSION)
            await stash.record_messages([{"role": "user", "parts": [{"text": "Go on."}]}], session_id=SESSION)
            contents = await view(stash)
            ask_rest(provider.url, contents)
            assert as_bytes([contents[1]]) == as_bytes([said])
            assert "error" in contents[2]["parts"][0]["functionResponse"]["response"]
