"""OpenAI's own compaction, `POST /responses/compact`, by its real SDK: nothing of the conversation is lost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from openai import OpenAI

from tests.proxy import test_codex
from tests.proxy.test_codex import OURS, SHELL, placeholders
from tests.support.caching_provider import CachingProvider, tokens
from tests.support.proxies import Clock, RunningProxy

MODEL = "gpt-5.4"
SEALED = {"type": "compaction", "id": "cmp_1", "encrypted_content": "c2VhbGVk/+=="}


pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer")  # of the SDK, about messages of the user


def items(turns: int) -> Any:
    """A conversation with so many calls and their outputs."""
    return test_codex.items(turns)[1:]


def size(body: dict[str, Any]) -> int:
    return tokens(json.dumps(body))


@pytest.fixture(autouse=True)
def openai_api(provider: CachingProvider) -> None:
    """Replies with a message of its own, and compacts to the user's messages and a sealed item, as the API does."""

    def usage(body: dict[str, Any]) -> dict[str, Any]:
        return {"input_tokens": size(body), "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 40}

    def events(body: dict[str, Any]) -> list[dict[str, Any]]:
        response = {"id": f"resp_{len(provider.asked)}", "object": "response", "output": [], "usage": usage(body)}
        return [{"type": "response.completed", "response": response, "sequence_number": 0}]

    def compacted(body: dict[str, Any]) -> dict[str, Any]:
        users = [item for item in body.get("input") or [] if item.get("role") == "user"]
        about = {"id": "resp_c", "object": "response.compaction", "created_at": 1}
        return {**about, "output": [*users, SEALED], "usage": usage(body)}

    provider.responses_events, provider.compacted = events, compacted


@pytest.fixture
def client(proxy: RunningProxy) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{proxy.url}/v1", api_key="sk-test", max_retries=0) as opened:
        yield opened


def ask(client: OpenAI, proxy: RunningProxy, listed: list[Any], **fields: Any) -> str:
    """Send a request; the session that it belongs to."""
    tools: Any = [SHELL, OURS]
    with client.responses.with_streaming_response.create(
        model=MODEL, input=listed, tools=tools, stream=True, **fields
    ) as response:
        response.read()
        session_id = response.headers["x-contextstash-session"]
    proxy.settle()
    return str(session_id)


def recorded(proxy: RunningProxy, session_id: str) -> list[dict[str, Any]]:
    """The conversation as it goes on now."""
    assert proxy.engine._sessions is not None
    reading = proxy.engine._sessions.natives(session_id)
    return asyncio.run_coroutine_threadsafe(reading, proxy.loop).result(30)


def events(proxy: RunningProxy, session_id: str) -> list[tuple[str, int, int]]:
    """What was logged of a session: the kind, and the tokens before and after."""
    assert proxy.engine._sessions is not None
    store = proxy.engine._sessions._access.store
    found = asyncio.run_coroutine_threadsafe(store.last_events(session_id, ("compaction",), 9), proxy.loop).result(30)
    return [(event.strategy or "", event.tokens_before, event.tokens_after) for event in found]


def test_what_only_the_request_for_the_compaction_holds_is_recorded_and_billed(
    provider: CachingProvider, proxy: RunningProxy, client: OpenAI
) -> None:
    session_id = ask(client, proxy, items(3))
    compacted = client.responses.compact(model=MODEL, input=items(4))
    proxy.settle()
    assert provider.asked[-1].json == {"model": MODEL, "input": items(4)}
    assert [item.type for item in compacted.output] == ["message", "compaction"]
    assert recorded(proxy, session_id) == items(4)
    state = proxy.state(session_id)
    assert state.requests == 2
    assert state.sent == sum(size(asked.json) for asked in provider.asked)


def test_the_session_goes_on_with_what_the_compaction_returned(
    provider: CachingProvider, proxy: RunningProxy, client: OpenAI
) -> None:
    session_id = ask(client, proxy, items(4))
    compacted = client.responses.compact(model=MODEL, input=items(5))
    proxy.settle()
    window = [*compacted.output, {"role": "user", "content": "Go on."}]
    assert ask(client, proxy, window) == session_id
    sent = provider.asked[-1].json["input"]
    assert sent[1] == SEALED
    assert recorded(proxy, session_id) == sent
    [(strategy, before, after)] = events(proxy, session_id)
    assert (strategy, before) == ("client", size(provider.asked[-2].json))
    assert after == size(provider.asked[-1].json) < before
    assert ask(client, proxy, items(0)) != session_id


def test_a_conversation_that_the_api_keeps_is_compacted_with_what_it_holds(
    provider: CachingProvider, proxy: RunningProxy, client: OpenAI
) -> None:
    session_id = ask(client, proxy, items(2))
    new = items(3)[-2:]
    client.responses.compact(model=MODEL, input=new, previous_response_id="resp_1")
    proxy.settle()
    assert recorded(proxy, session_id) == items(3)
    assert ask(client, proxy, items(4)[-2:], previous_response_id="resp_1") == session_id


def test_placeholders_stay_in_the_request_for_the_compaction(
    provider: CachingProvider, proxy: RunningProxy, client: OpenAI, clock: Clock
) -> None:
    ask(client, proxy, items(7))
    clock.now += 4_000
    ask(client, proxy, items(8))
    before = placeholders(provider)
    client.responses.compact(model=MODEL, input=items(9))
    assert placeholders(provider) == before != []


def test_a_conversation_that_the_proxy_has_not_seen_is_recorded_from_its_compaction(
    provider: CachingProvider, proxy: RunningProxy, client: OpenAI
) -> None:
    compacted = client.responses.with_raw_response.compact(model=MODEL, input=items(2))
    proxy.settle()
    session_id = compacted.headers["x-contextstash-session"]
    assert recorded(proxy, session_id) == items(2)
    assert ask(client, proxy, [*compacted.parse().output, {"role": "user", "content": "Go on."}]) == session_id
