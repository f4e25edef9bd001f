"""The server over HTTP: tokens, scopes, health, and its end."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import MCPError

from contextstash.operations import OPERATIONS, SCOPES
from tests.support.command_line import CommandLine
from tests.support.servers import (
    INITIALIZE,
    answer,
    error,
    http_client,
    http_command,
    http_server,
    local_token,
    new_token,
    small_session,
    started_http_server,
)

pytestmark = pytest.mark.processes

PUBLIC = "https://stash.example/mcp"


class Served:
    """A server process, under a public name too."""

    def __init__(self, address: str, database: Path) -> None:
        self.address = address
        self.database = database
        self.base = address.removesuffix("/mcp")
        self._made = 0

    def token(self, *scopes: str, owner: str = "alice", **more: Any) -> str:
        self._made += 1
        return new_token(self.database, f"{owner}-{self._made}", *scopes, owner=owner, **more)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    database = tmp_path_factory.mktemp("access") / "s.db"
    with http_server(database, public_url=PUBLIC) as address:
        yield Served(address, database)


def initialize(address: str, **headers: str) -> httpx2.Response:
    """The response to the first request of a client."""
    given = {"accept": "application/json, text/event-stream", **headers}
    return httpx2.post(address, json=INITIALIZE, headers=given, timeout=60)


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    for _ in range(600):
        if await anyio.to_thread.run_sync(holds):
            return
        await anyio.sleep(0.1)
    raise AssertionError("it never held")


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def test_a_request_without_a_valid_token_learns_only_that(served: Served) -> None:
    expired = served.token("read", days=-1)
    for headers in ({}, bearer("cst_" + "x" * 43), bearer(expired), {"authorization": f"Basic {expired}"}):
        refused = initialize(served.address, **headers)
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"].startswith("Bearer ")
        assert "contextstash" not in refused.text


def test_a_revoked_token_is_refused(served: Served) -> None:
    token = served.token("read", owner="bob")
    assert initialize(served.address, **bearer(token)).status_code == 200
    names = CommandLine(served.database.parent).json("token", "list", "--db", str(served.database))["tokens"]
    [name] = [each["name"] for each in names if each["owner"] == "bob"]
    CommandLine(served.database.parent).run("token", "revoke", name, "--db", str(served.database))
    assert initialize(served.address, **bearer(token)).status_code == 401


async def test_each_tool_needs_the_scope_that_its_annotations_name(served: Served) -> None:
    everything = served.token(*SCOPES, owner="scopes")
    async with http_client(served.address, everything) as client:
        await answer(client, "record_messages", session_id="s", messages=small_session(1))
        tools = (await client.list_tools()).tools
    needed = {tool.name: OPERATIONS[tool.name].scope for tool in tools}
    assert {"search_history": "read", "get_context": "write", "delete_session": "admin"}.items() <= needed.items()
    for scope in SCOPES:
        others = tuple(each for each in SCOPES if each != scope)
        async with http_client(served.address, served.token(*others, owner="scopes")) as client:
            for name in [name for name, wanted in needed.items() if wanted == scope]:
                text = await error(client, name, session_id="s")
                assert f"needs the scope {scope}; this token has: {', '.join(others)}" in text
            if scope == "read":
                with pytest.raises(MCPError, match="needs the scope read"):
                    await client.read_resource("context://sessions")
    async with http_client(served.address, served.token("read", owner="scopes")) as client:
        assert (await answer(client, "estimate_context", session_id="s"))["session_id"] == "s"


def test_the_health_of_a_server_needs_no_token_no_name_and_no_database(tmp_path: Path) -> None:
    database = tmp_path / "s.db"
    database.write_bytes(b"no database" * 100)
    with started_http_server(http_command(database)) as (_, address):
        reply = httpx2.get(address.replace("/mcp", "/healthz"), headers={"host": "10.1.2.3:8787"})
        assert (reply.status_code, reply.text) == (200, "ok\n")
        refused = initialize(address, **bearer("cst_" + "x" * 43))
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")


def refuses_connections(address: str) -> bool:
    try:
        httpx2.get(address, timeout=5)
    except httpx2.ConnectError:
        return True
    return False


async def test_after_sigterm_running_requests_end_and_new_ones_are_refused(tmp_path: Path) -> None:
    database = tmp_path / "s.db"
    sent, release = anyio.Event(), anyio.Event()
    call = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_sessions","arguments":{}}}'

    async def slow_body() -> Any:
        yield call[:10]
        sent.set()
        await release.wait()
        yield call[10:]

    with started_http_server(http_command(database)) as (process, address):
        headers = {
            **bearer(local_token(database)),
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2025-11-25",
        }
        async with httpx2.AsyncClient(timeout=60) as client, anyio.create_task_group() as group:
            replies: list[httpx2.Response] = []

            async def slow() -> None:
                replies.append(await client.post(address, content=slow_body(), headers=headers))

            group.start_soon(slow)
            await sent.wait()
            assert (await client.get(address.replace("/mcp", "/healthz"))).status_code == 200
            process.send_signal(signal.SIGTERM)
            await until(lambda: refuses_connections(address))
            release.set()
        assert replies[0].status_code == 200
        assert '"sessions":[]' in replies[0].text
        assert process.wait(timeout=30) == 0
