"""A session that is deleted, or served by two proxies, while its client runs; and one that the provider keeps."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.proxies import (
    ID,
    OLD,
    READ,
    CachingProvider,
    Clock,
    RunningProxy,
    in_stash,
    placeholders,
    prune_cold,
    recorded,
    request_of,
    running_proxy,
    session,
    turn,
)


def delete(database: Path, session_id: str = ID) -> None:
    in_stash(database, lambda stash: stash.delete_session(session_id))


def test_the_edits_of_a_deleted_session_end_with_it_and_it_is_not_recorded_again(proxy: RunningProxy) -> None:
    messages = session(8)
    prune_cold(proxy, messages)
    assert placeholders(proxy.provider.bodies[-1]) == OLD
    delete(proxy.database)
    for number in range(3):
        messages += turn(20 + number, "x" * 9_000)
        proxy.clock.now += 400
        proxy.send(request_of(messages))
        assert proxy.provider.asked[-1].body == json.dumps(request_of(messages)).encode()
    assert recorded(proxy.database) == {}


def test_a_session_that_is_deleted_while_the_model_replies_is_not_recorded_again(
    proxy: RunningProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = session(3)
    proxy.send(request_of(messages[:5]))
    kept = proxy.engine._keep

    async def late(*given: Any) -> None:
        await asyncio.to_thread(delete, proxy.database)
        await kept(*given)

    monkeypatch.setattr(proxy.engine, "_keep", late)
    proxy.send(request_of(messages))
    assert recorded(proxy.database) == {}


@pytest.mark.parametrize("named", [True, False])
def test_a_session_that_is_deleted_while_no_proxy_runs_is_not_recorded_again(
    provider: CachingProvider, clock: Clock, tmp_path: Path, named: bool, caplog: pytest.LogCaptureFixture
) -> None:
    messages = session(4)
    fields: dict[str, Any] = {} if named else {"metadata": {}}
    database = tmp_path / "stash.db"
    for count in (5, 7, 9):
        with running_proxy(provider, database, clock) as proxy:
            body = request_of(messages[:count], **fields)
            proxy.send(body)
            assert provider.asked[-1].body == json.dumps(body).encode()
        if count == 5:
            [found] = recorded(database)
            delete(database, found)
    assert recorded(database) == {}
    assert "what its client goes on with is not recorded" in caplog.text
    with running_proxy(provider, database, clock) as proxy:
        proxy.send(request_of([{"role": "user", "content": "Another task."}], metadata={}))
    assert len(recorded(database)) == 1


@pytest.mark.parametrize("field", ["previous_response_id", "conversation"])
def test_what_continues_a_conversation_that_the_provider_keeps_goes_on_unchanged_and_is_counted(
    proxy: RunningProxy, field: str
) -> None:
    tools = [{"type": "function", "name": READ["name"], "parameters": {"type": "object"}}]
    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go on."}]}
    for kept in ({field: "kept_1"}, {}):
        body = json.dumps({"model": "gpt-5.4", "input": [said], "tools": tools, **kept}).encode()
        response = proxy.http.post(f"{proxy.url}/v1/responses", content=body, headers={"session-id": ID})
        proxy.settle()
        assert proxy.provider.asked[-1].body == body
        assert ("x-contextstash-session" in response.headers) is not bool(kept)
    assert recorded(proxy.database) == {ID: [said]}
    assert (proxy.state(ID).requests, proxy.state(ID).unread) == (1, 1)
