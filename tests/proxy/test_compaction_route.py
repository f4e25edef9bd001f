"""OpenAI's own compaction, `POST /responses/compact`, by its real SDK: what only its request holds is recorded."""

from __future__ import annotations

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
    """Replies with nothing, and compacts to the user's messages and a sealed item, as the API does."""

    def usage(body: dict[str, Any]) -> dict[str, Any]:
        return {"input_tokens": size(body), "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 40}

    def events(body: dict[str, Any]) -> list[dict[str, Any]]:
        response = {"id": "resp_1", "object": "response", "output": [], "usage": usage(body)}
        return [{"type": "response.completed", "response": response, "sequence_number": 0}]

    def compacted(body: dict[str, Any]) -> dict[str, Any]:
        users = [item for item in body["input"] if item.get("role") == "user"]
        about = {"id": "resp_c", "object": "response.compaction", "created_at": 1}
        return {**about, "output": [*users, SEALED], "usage": usage(body)}

    provider.responses_events, provider.compacted = events, compacted


@pytest.fixture
def client(proxy: RunningProxy) -> Iterator[OpenAI]:
    named = {"session-id": "s"}
    with OpenAI(base_url=f"{proxy.url}/v1", api_key="sk-test", max_retries=0, default_headers=named) as opened:
        yield opened


def ask(client: OpenAI, proxy: RunningProxy, listed: list[Any]) -> None:
    tools: Any = [SHELL, OURS]
    with client.responses.with_streaming_response.create(
        model=MODEL, input=listed, tools=tools, stream=True
    ) as response:
        response.read()
    proxy.settle()


def test_what_only_the_request_for_the_compaction_holds_is_recorded_and_billed_and_the_session_goes_on(
    provider: CachingProvider, proxy: RunningProxy, client: OpenAI
) -> None:
    ask(client, proxy, items(3))
    compacted = client.responses.compact(model=MODEL, input=items(4))
    proxy.settle()
    assert provider.asked[-1].json == {"model": MODEL, "input": items(4)}
    assert [item.type for item in compacted.output] == ["message", "compaction"]
    assert proxy.conversation("s") == items(4)
    ask(client, proxy, [*compacted.output, {"role": "user", "content": "Go on."}])
    sent = provider.asked[-1].json["input"]
    assert (sent[1], proxy.conversation("s")) == (SEALED, sent)
    state = proxy.state("s")
    assert (state.requests, state.sent) == (3, sum(size(asked.json) for asked in provider.asked))


def test_placeholders_stay_in_the_request_for_the_compaction(
    provider: CachingProvider, proxy: RunningProxy, client: OpenAI, clock: Clock
) -> None:
    ask(client, proxy, items(7))
    clock.now += 4_000
    ask(client, proxy, items(8))
    before = placeholders(provider)
    client.responses.compact(model=MODEL, input=items(9))
    assert placeholders(provider) == before != []
