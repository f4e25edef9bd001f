"""Models that bind their reasoning: by setting, the API's own context editing clears old results at a cold cache, and
a note lists their handles. The provider clears as Anthropic's page documents it."""

from __future__ import annotations

import asyncio
import copy
from pathlib import Path
from typing import Any

import pytest

from contextstash.service.queries.proxy_report import report_lines, report_of_all
from contextstash.service.stash import Stash
from contextstash_storage.sqlite import open_sqlite
from tests.support.bound_reasoning import mismatched, reasoning_after
from tests.support.caching_provider import CachingProvider, Refusal
from tests.support.context_editing import BETA, PLACEHOLDER, edited_by_provider
from tests.support.proxies import READ, RETRIEVAL, Clock, RunningProxy, request_of, running_proxy, turn

SESSION = "cleared-1"
MODEL = "claude-opus-5-5"
CLEARING = {"provider_clearing": True}
HEADERS = {"x-claude-code-session-id": SESSION, "anthropic-beta": "interleaved-thinking-2025-05-14"}


def text_of(number: int) -> str:
    return "".join(f"line {number}-{k}: checked and found in order\n" for k in range(200))


class Client:
    """An agent that sends its own history as it is, with the thinking that came back."""

    def __init__(self, proxy: RunningProxy, provider: CachingProvider, clock: Clock) -> None:
        self.proxy, self.provider, self.clock = proxy, provider, clock
        self.messages: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "text", "text": "Fix it."}]}]
        self.calls = 0

    def ask(self, model: str = MODEL, **fields: Any) -> dict[str, Any]:
        """The request as the provider got it."""
        self.clock.now += 10
        body = request_of(self.messages, model=model, tools=[READ, RETRIEVAL], **fields)
        betas = {"anthropic-beta": f"{HEADERS['anthropic-beta']},{BETA}"} if fields else {}
        response = self.proxy.send(body, {**HEADERS, **betas})
        assert response.is_success, response.text
        found: dict[str, Any] = self.provider.asked[-1].json
        return found

    def work(self, turns: int, model: str = MODEL, **fields: Any) -> list[dict[str, Any]]:
        """Go on for so many calls; the requests as the provider got them."""
        seen = []
        for _ in range(turns):
            seen.append(self.ask(model, **fields))
            call, result = turn(self.calls, text_of(self.calls))
            thinking = reasoning_after("anthropic", seen[-1], self.calls)
            self.messages += [{**call, "content": [thinking, *call["content"]]}, result]
            self.calls += 1
        return seen

    def pause(self, text: str) -> None:
        """The user says something after the cache has expired."""
        self.ask()
        self.messages += [{"role": "assistant", "content": [{"type": "text", "text": "Done."}]}]
        self.messages += [{"role": "user", "content": [{"type": "text", "text": text}]}]
        self.clock.now += 400


@pytest.fixture
def clearing(provider: CachingProvider, clock: Clock, tmp_path: Path) -> Any:
    with running_proxy(provider.url, tmp_path / "stash.db", clock, settings=CLEARING) as running:
        yield running


@pytest.fixture
def client(clearing: RunningProxy, provider: CachingProvider, clock: Clock) -> Client:
    return Client(clearing, provider, clock)


def cleared_calls(body: dict[str, Any]) -> list[str]:
    """The calls whose results the model does not see."""
    shown, _ = edited_by_provider(body, BETA)
    blocks = [block for message in shown["messages"] for block in message["content"]]
    return [block["tool_use_id"] for block in blocks if block.get("content") == PLACEHOLDER]


def notes(body: dict[str, Any]) -> list[tuple[int, str]]:
    return [
        (place, block["text"])
        for place, message in enumerate(body["messages"])
        for block in message["content"]
        if block["type"] == "text" and "cleared tool results" in block["text"]
    ]


def without_notes(body: dict[str, Any]) -> list[Any]:
    """The messages as the client sent them, breakpoints aside."""
    found: list[Any] = copy.deepcopy(body["messages"])
    for message in found:
        message["content"] = [b for b in message["content"] if "cleared tool results" not in str(b.get("text"))]
        for block in message["content"]:
            block.pop("cache_control", None)
    return found


def test_at_a_cold_cache_the_api_clears_old_results_and_a_note_lists_their_handles(client: Client) -> None:
    assert all("context_management" not in body for body in client.work(8))
    client.pause("Now the second part.")
    [first] = client.work(1)
    gone = cleared_calls(first)
    assert gone == [f"toolu_{number}" for number in range(len(gone))]
    assert 3 <= len(gone) < 8
    [(place, note)] = notes(first)
    assert place == len(first["messages"]) - 1
    assert note.count("out_") == len(gone)
    assert without_notes(first) == client.messages[:-2], "the history was changed"
    [beta] = [value for name, value in client.provider.asked[-1].headers if name.lower() == "anthropic-beta"]
    assert beta == f"{HEADERS['anthropic-beta']},{BETA}"


def test_the_same_results_stay_cleared_and_no_reasoning_is_lost(client: Client) -> None:
    client.work(8)
    client.pause("Now the second part.")
    seen = client.work(5)
    assert {tuple(cleared_calls(body)) for body in seen} == {tuple(cleared_calls(seen[0]))}
    assert {tuple(notes(body)) for body in seen} == {tuple(notes(seen[0]))}
    assert [mismatched("anthropic", body) for body in seen] == [0] * 5
    prompts = [sum(usage.values()) for usage in client.provider.usage]
    assert prompts[-1] < prompts[8]
    assert client.provider.usage[-1]["cache_read_input_tokens"] > 0.5 * prompts[-1], "the cache is used again"


def test_more_leaves_only_when_the_cache_is_cold_again(client: Client) -> None:
    client.work(8)
    client.pause("Now the second part.")
    [*_, before] = client.work(6)
    client.pause("And the third.")
    [after] = client.work(1)
    assert len(cleared_calls(after)) > len(cleared_calls(before))
    assert len(notes(after)) == 2
    assert notes(after)[0] == notes(before)[0]
    assert mismatched("anthropic", after) == 0


def test_what_was_cleared_is_one_retrieval_away(client: Client) -> None:
    client.work(8)
    client.pause("Now the second part.")
    [(_, note)] = notes(client.work(1)[0])
    handle = note.partition("- ")[2].partition(":")[0]

    async def read() -> str:
        stash = Stash(await open_sqlite(client.proxy.database))
        try:
            return (await stash.get_archived_output(handle, session_id=SESSION)).text
        finally:
            await stash.close()

    assert "line 0-199: checked" in asyncio.run(read())


def test_another_process_asks_for_the_same(
    client: Client, provider: CachingProvider, clock: Clock, tmp_path: Path
) -> None:
    client.work(8)
    client.pause("Now the second part.")
    [before] = client.work(1)
    with running_proxy(provider.url, tmp_path / "stash.db", clock, settings=CLEARING) as second:
        client.proxy = second
        [after] = client.work(1)
    assert (cleared_calls(after), notes(after)) == (cleared_calls(before), notes(before))
    assert mismatched("anthropic", after) == 0


def test_what_the_provider_reports_is_shown(client: Client) -> None:
    client.work(8)
    client.pause("Now the second part.")
    client.work(2)
    told = [edit["cleared_input_tokens"] for applied in client.provider.applied for edit in applied]
    assert len(told) == 2
    state = client.proxy.state(SESSION)
    assert state.provider_cleared == sum(told)
    shown = report_lines(report_of_all([state]))
    assert f"Tool results that the provider cleared, in all requests: {sum(told):,} tokens." in shown


def test_thinking_that_the_client_lets_the_api_clear_stays_in_front(client: Client) -> None:
    own = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}
    client.work(8)
    client.pause("Now the second part.")
    [body] = client.work(1, context_management=own)
    assert [edit["type"] for edit in body["context_management"]["edits"]] == [
        "clear_thinking_20251015",
        "clear_tool_uses_20250919",
    ]


def test_a_client_that_clears_or_compacts_by_the_api_is_left_alone(client: Client) -> None:
    client.work(8)
    client.pause("Now the second part.")
    own = {"edits": [{"type": "compact_20260112"}]}
    body = client.ask(context_management=own)
    assert body["context_management"] == own
    assert not notes(body)


def test_after_the_clients_compaction_nothing_is_cleared(client: Client) -> None:
    client.work(8)
    client.pause("Now the second part.")
    client.work(1)
    client.messages = [{"role": "user", "content": "This session is being continued from a previous conversation. …"}]
    body = client.ask()
    assert "context_management" not in body
    assert not notes(body)


def test_a_provider_that_refuses_the_edit_gets_the_original(client: Client) -> None:
    client.work(8)
    client.pause("Now the second part.")
    refused = Refusal(400, "context_management: not supported", lambda body: "context_management" in body)
    client.provider.refusals.append(refused)
    body = client.ask()
    assert "context_management" not in body
    assert not notes(body)
    assert client.proxy.state(SESSION).left_alone


def test_models_that_bind_nothing_and_sessions_without_the_setting_are_not_cleared(
    client: Client, provider: CachingProvider, clock: Clock, tmp_path: Path
) -> None:
    client.work(8, "claude-sonnet-4-5")
    client.pause("Now the second part.")
    assert "context_management" not in client.work(1, "claude-sonnet-4-5")[0]
    with running_proxy(provider.url, tmp_path / "other.db", clock) as plain:
        other = Client(plain, provider, clock)
        other.work(8)
        other.pause("Now the second part.")
        assert "context_management" not in other.work(1)[0]
