"""Streams end with their token, on a real server and for each kind of stream."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken

from contextstash.mcp.http.token_verifier import EndedWithToken
from contextstash_storage.errors import StoreBusyError
from tests.support.command_line import CommandLine
from tests.support.servers import http_server, local_token, new_token

pytestmark = pytest.mark.processes

ACCEPT = {"accept": "application/json, text/event-stream"}


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("expiry") / "s.db"


@pytest.fixture(scope="module")
def address(database: Path) -> Iterator[str]:
    with http_server(database, stateful=True) as served:
        yield served


def revoke(database: Path, name: str) -> None:
    done = CommandLine(database.parent).run("token", "revoke", name, "--db", str(database))
    assert done.returncode == 0, done.stderr


async def test_a_stream_ends_when_its_token_is_revoked_and_those_of_others_go_on(address: str, database: Path) -> None:
    lost = new_token(database, "lost", "read")
    kept = local_token(database)
    opened, lost_ended, ended = anyio.Event(), anyio.Event(), set()

    async def listen(name: str, token: str) -> None:
        headers = ACCEPT | {"authorization": f"Bearer {token}"}
        async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
            params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
            began = await http.post(address, json=request("initialize", params))
            session = {"mcp-session-id": began.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
            async with http.stream("GET", address, headers=session) as stream:
                assert stream.status_code == 200
                if name == "kept":
                    opened.set()
                async for _ in stream.aiter_bytes():
                    pass
                ended.add(name)
                lost_ended.set()

    async with anyio.create_task_group() as group:
        group.start_soon(listen, "lost", lost)
        group.start_soon(listen, "kept", kept)
        await opened.wait()
        await anyio.to_thread.run_sync(revoke, database, "lost")
        with anyio.fail_after(60):
            await lost_ended.wait()
        assert ended == {"lost"}
        group.cancel_scope.cancel()


def request(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


async def test_a_subscription_ends_when_its_token_is_revoked(address: str, database: Path) -> None:
    headers = {"authorization": f"Bearer {new_token(database, 'subscriber', 'read')}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(streamable_http_client(address, http_client=http), mode="auto") as client,
    ):
        assert client.protocol_version > "2025-11-25"
        with anyio.fail_after(60):
            async with client.listen(tools_list_changed=True) as events:
                await anyio.to_thread.run_sync(revoke, database, "subscriber")
                with pytest.raises(SubscriptionLost):
                    await anext(events)


class Verifier:
    """Says of a token what a test wants; None is no token, an error that nobody can say."""

    def __init__(self) -> None:
        self.says: AccessToken | Exception | None = AccessToken(token="t", client_id="c", scopes=[])

    async def verify_token(self, _: str) -> AccessToken | None:
        if isinstance(self.says, Exception):
            raise self.says
        return self.says


async def never_ends(*_: Any) -> Any:
    await asyncio.Event().wait()


async def run(app: Any, token: str = "t") -> list[Any]:
    """The messages of a response to a request with a token."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    user = AuthenticatedUser(AccessToken(token=token, client_id="c", scopes=[]))
    await app({"type": "http", "user": user}, None, send)
    return sent


@pytest.mark.parametrize("error", [StoreBusyError("The database does not respond."), RuntimeError("a defect")])
async def test_a_request_goes_on_if_nobody_can_say_whether_its_token_is_valid(error: Exception) -> None:
    verifier = Verifier()
    verifier.says = error
    app = EndedWithToken(never_ends, verifier, seconds=0.001)
    with anyio.move_on_after(0.1) as waited:
        await run(app)
    assert waited.cancelled_caught
    verifier.says = None
    [start, body] = await run(app)
    assert (start["status"], body["body"]) == (401, b"This token is not valid any more.")


async def test_a_request_ends_when_its_token_expires_although_it_is_remembered_as_valid() -> None:
    verifier = Verifier()
    verifier.says = AccessToken(token="t", client_id="c", scopes=[], expires_at=int(time.time()) - 1)
    with anyio.fail_after(20):
        [start, _] = await run(EndedWithToken(never_ends, verifier, seconds=0.001))
    assert start["status"] == 401


async def test_a_token_that_takes_long_to_verify_delays_the_end_of_no_other() -> None:
    class Slow(Verifier):
        async def verify_token(self, token: str) -> AccessToken | None:
            return await never_ends() if token == "slow" else None

    app = EndedWithToken(never_ends, Slow(), seconds=0.001)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(run, app, "slow")
            for token in ("first", "second"):
                await anyio.sleep(0.05)
                assert (await run(app, token))[0]["status"] == 401
            group.cancel_scope.cancel()


async def test_a_request_that_begins_while_the_check_ends_is_checked_too() -> None:
    ending, over = asyncio.Event(), asyncio.Event()

    class Slow(Verifier):
        async def verify_token(self, token: str) -> AccessToken | None:
            if token == "first":
                try:
                    await never_ends()
                finally:
                    ending.set()
                    with anyio.CancelScope(shield=True):
                        await over.wait()
            return None

    async def lasts(scope: Any, *_: Any) -> None:
        await anyio.sleep(0.05 if scope["user"].access_token.token == "first" else 60)

    app = EndedWithToken(lasts, Slow(), seconds=0.001)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(run, app, "first")
            await ending.wait()
            group.start_soon(run, app, "second")
            await anyio.wait_all_tasks_blocked()
            over.set()


async def test_a_response_that_began_is_ended_and_no_second_one_sent() -> None:
    async def streams(_: Any, __: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"data", "more_body": True})
        await never_ends()

    verifier = Verifier()
    verifier.says = None
    *_, last = await run(EndedWithToken(streams, verifier, seconds=0.001))
    assert last == {"type": "http.response.body", "body": b"", "more_body": False}
