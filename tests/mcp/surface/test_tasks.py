"""A compaction that takes long, as a task: real server processes, the SDK's own client with an extension for tasks."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import httpx2
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, Request, RequestParams, Result

from contextstash.mcp.surface.tasks import IDENTIFIER
from tests.support.model_provider import SUMMARY, Answer, model_provider
from tests.support.servers import (
    SESSION,
    answer,
    new_token,
    record,
    started_http_server,
    text_of,
)

pytestmark = pytest.mark.processes


class Named(RequestParams):
    task_id: str


class OfTask(Request[Named, str]):
    method: str
    params: Named


class State(Result):
    result_type: str | None = None
    task_id: str | None = None
    status: str | None = None
    created_at: str | None = None
    last_updated_at: str | None = None
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


class Created(State):
    result_type: Literal["task"] = "task"


class Polling(ClientExtension):
    """What a client does with a task: `held` is set with it, and its result is asked for until it is there."""

    identifier = IDENTIFIER

    def __init__(self) -> None:
        self.created: list[Created] = []
        self.held = asyncio.Event()

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=Created, resolve=self._polled)]

    async def _polled(self, created: Created, context: ClaimContext) -> CallToolResult:
        self.created.append(created)
        self.held.set()
        while True:
            state = await of_task(context.session, "tasks/get", created.task_id)
            assert state.result_type == "complete"
            if state.status == "completed":
                return CallToolResult.model_validate(state.result)
            if state.status != "working":
                raise RuntimeError(state.status)
            await asyncio.sleep(0.1)


async def of_task(session: Any, method: str, task_id: str | None) -> State:
    request = OfTask(method=method, params=Named(task_id=task_id or ""))
    state: State = await session.send_request(request, State)
    return state


def serving(database: Path, *options: str) -> list[str]:
    """The command itself, which reads the user's consent to a model from the environment."""
    return [sys.executable, "-m", "contextstash", "serve", "--tools", "all", "--db", str(database), *options]


def environment(url: str) -> dict[str, str]:
    wanted = {"CONTEXTSTASH_ANTHROPIC_API_KEY": "test-key", "ANTHROPIC_BASE_URL": url}
    return {**os.environ, **wanted}


@asynccontextmanager
async def stdio(database: Path, url: str, polling: Polling | None) -> AsyncIterator[Client]:
    command = serving(database)
    parameters = StdioServerParameters(command=command[0], args=command[1:], env=environment(url))
    extensions = [polling] if polling else None
    async with Client(parameters, read_timeout_seconds=60, extensions=extensions) as client:
        await record(client)
        await answer(client, "configure_session", session_id=SESSION, settings={"compact_keep_tokens": 0})
        yield client


CALL = {"session_id": SESSION, "strategy": "anthropic"}


async def test_a_compaction_that_takes_long_is_a_task_whose_result_is_that_of_the_call(tmp_path: Path) -> None:
    written = threading.Event()
    with model_provider(Answer(waits_for=written)) as provider:
        polling = Polling()
        async with stdio(tmp_path / "s.db", provider.url, polling) as client:
            call = asyncio.create_task(client.call_tool("compact_session", CALL))
            await asyncio.wait_for(polling.held.wait(), 15)
            assert await answer(client, "context_status", session_id=SESSION)  # the server goes on meanwhile
            written.set()
            result = await asyncio.wait_for(call, 15)
            [created] = polling.created
            ended = await of_task(client.session, "tasks/get", created.task_id)
            await of_task(client.session, "tasks/cancel", created.task_id)
            assert (await of_task(client.session, "tasks/update", created.task_id)).result_type == "complete"
    assert created.status == "working"
    assert (ended.status, ended.created_at) == ("completed", created.created_at)
    assert not result.is_error, text_of(result)
    assert result.structured_content
    assert (result.structured_content["strategy"], result.structured_content["compacted"]) == ("anthropic", True)
    assert SUMMARY in result.structured_content["summary"]


async def test_a_client_that_declares_nothing_and_a_call_that_ends_soon_get_the_result(tmp_path: Path) -> None:
    written = threading.Event()
    with model_provider(Answer(waits_for=written)) as provider:
        async with stdio(tmp_path / "s.db", provider.url, None) as client:
            call = asyncio.create_task(client.call_tool("compact_session", CALL))
            await asyncio.sleep(3)
            written.set()
            result = await asyncio.wait_for(call, 15)
        assert not result.is_error, text_of(result)
    polling = Polling()
    async with stdio(tmp_path / "t.db", "http://127.0.0.1:9", polling) as client:
        assert (await answer(client, "compact_session", session_id=SESSION, strategy="extractive"))["compacted"]
    assert polling.created == []


async def test_a_cancelled_task_compacts_nothing_and_an_unknown_one_is_an_error(tmp_path: Path) -> None:
    with model_provider(Answer(waits_for=threading.Event())) as provider:
        polling = Polling()
        async with stdio(tmp_path / "s.db", provider.url, polling) as client:
            call = asyncio.create_task(client.call_tool("compact_session", CALL))
            await asyncio.wait_for(polling.held.wait(), 15)
            await of_task(client.session, "tasks/cancel", polling.created[0].task_id)
            with pytest.raises(RuntimeError, match="cancelled"):
                await asyncio.wait_for(call, 15)
            with pytest.raises(MCPError, match="Unknown task"):
                await of_task(client.session, "tasks/get", "guessed")
            status = await answer(client, "context_status", session_id=SESSION)
            assert not any(event["kind"] == "compact" for event in status.get("events", []))


async def test_a_task_over_http_is_its_owners_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database, written = tmp_path / "s.db", threading.Event()
    tokens = [new_token(database, name, owner=name) for name in ("ana", "ben")]
    with model_provider(Answer(waits_for=written)) as provider:
        for name, value in environment(provider.url).items():
            monkeypatch.setenv(name, value)
        with started_http_server(serving(database, "--http", "127.0.0.1:0")) as (_, address):
            polling = Polling()
            async with connected(address, tokens[0], polling) as ana, connected(address, tokens[1], Polling()) as ben:
                await record(ana)
                await answer(ana, "configure_session", session_id=SESSION, settings={"compact_keep_tokens": 0})
                call = asyncio.create_task(ana.call_tool("compact_session", CALL))
                await asyncio.wait_for(polling.held.wait(), 15)
                for method in ("tasks/get", "tasks/cancel", "tasks/update"):
                    with pytest.raises(MCPError, match="Unknown task"):
                        await of_task(ben.session, method, polling.created[0].task_id)
                written.set()
                result = await asyncio.wait_for(call, 15)
    assert not result.is_error, text_of(result)


@asynccontextmanager
async def connected(address: str, token: str, polling: Polling) -> AsyncIterator[Client]:
    async with (
        httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"}, timeout=60) as http,
        Client(
            streamable_http_client(address, http_client=http), read_timeout_seconds=60, extensions=[polling]
        ) as client,
    ):
        yield client


async def test_a_server_ends_while_a_task_runs_and_the_session_is_as_before(tmp_path: Path) -> None:
    database = tmp_path / "s.db"
    with model_provider(Answer(waits_for=threading.Event())) as provider:
        polling = Polling()
        async with stdio(database, provider.url, polling) as client:
            call = asyncio.create_task(client.call_tool("compact_session", CALL))
            await asyncio.wait_for(polling.held.wait(), 15)
            call.cancel()
            before, began = await answer(client, "get_context", session_id=SESSION), time.monotonic()
        assert time.monotonic() - began < 10
        command = StdioServerParameters(command=sys.executable, args=serving(database)[1:])
        async with Client(command, read_timeout_seconds=60) as client:
            assert await answer(client, "get_context", session_id=SESSION) == before
