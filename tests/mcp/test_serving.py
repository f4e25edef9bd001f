"""Server processes: how they start, serve requests and stop; over HTTP with tokens, scopes and health."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import MCPError

from contextstash.cli.app import run
from contextstash.mcp.stdio import round_trip
from contextstash.operations import OPERATIONS, SCOPES
from contextstash.stash_opener import StashOpener
from contextstash_storage.databases import location_of
from contextstash_storage.errors import ContextstashError
from contextstash_storage.records import ProxiedSession
from tests.support.command_line import CommandLine
from tests.support.postgres_server import new_store_address
from tests.support.servers import (
    INITIALIZE,
    MODES,
    READY,
    SESSION,
    Mode,
    answer,
    answered,
    error,
    http_client,
    http_command,
    http_server,
    local_token,
    new_token,
    record,
    small_session,
    started,
    stdio_command,
    talking,
)

pytestmark = pytest.mark.processes

RECORD = {
    "jsonrpc": "2.0",
    "id": 2,
    "method": "tools/call",
    "params": {"name": "record_messages", "arguments": {"session_id": SESSION, "messages": small_session(1)}},
}


RECORDED = len(small_session(1))


def test_closed_stdin_stops_the_server_and_closes_its_store(tmp_path: Path) -> None:
    database = tmp_path / "s.db"
    with talking(stdio_command(database)) as process:
        reply = answered(process, INITIALIZE, READY, RECORD)
        out, err = process.communicate(timeout=30)
    assert reply["result"]["structuredContent"]["recorded"] == RECORDED
    assert (process.returncode, out, err) == (0, b"", b"")
    assert not database.with_name("s.db-wal").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_server_cleanly_while_stdin_is_open(tmp_path: Path, number: signal.Signals) -> None:
    database = tmp_path / "s.db"
    with talking(stdio_command(database)) as process:
        answered(process, INITIALIZE, READY, RECORD)
        process.send_signal(number)
        code = process.wait(timeout=30)
    assert code == 0
    assert not database.with_name("s.db-wal").exists()


def test_starting_and_listing_opens_no_database_and_imports_nothing_heavy(tmp_path: Path) -> None:
    code = """
import sys, anyio
from mcp import Client
from contextstash.mcp.server import build_server
from contextstash.stash_opener import StashOpener

async def main():
    async with Client(build_server(StashOpener(), "all")) as client:
        await client.list_tools()
        await client.list_resources()
        await client.list_prompts()

anyio.run(main)
heavy = {"aiosqlite", "sqlcipher3", "tiktoken", "genai_prices", "anthropic", "platformdirs"}
heavy.add("contextstash.stash")
print(sorted(heavy & sys.modules.keys()))
"""
    environment = {**os.environ, "CONTEXTSTASH_DB": str(tmp_path / "s.db")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", MODES)
async def test_clients_of_both_generations_share_one_http_server(tmp_path: Path, mode: Mode) -> None:
    database = tmp_path / "s.db"
    with http_server(database) as address:
        async with http_client(address, local_token(database), mode) as client:
            await record(client)
        async with http_client(address, local_token(database), mode) as client:
            context = await answer(client, "get_context", session_id=SESSION)
            text = await error(client, "estimate_context", session_id="nobody")
    assert context["messages"] == small_session()
    assert "nobody" in text


def test_only_this_machine_is_served(tmp_path: Path) -> None:
    command = http_command(tmp_path / "s.db", "0.0.0.0")
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "Serving on 0.0.0.0 would show every session" in done.stderr


@pytest.mark.parametrize("program", ["raise SystemExit", "import time; time.sleep(60)"])
async def test_a_server_that_does_not_answer_is_an_error_in_time(program: str) -> None:
    with pytest.raises(ContextstashError, match="did not answer"):
        await round_trip([sys.executable, "-c", program], 0.5)


@pytest.mark.postgres
def test_commands_read_the_same_database_and_show_no_password(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    address = new_store_address().url.replace("tests@", "tests:s3cret@")
    monkeypatch.setenv("CONTEXTSTASH_DB", address)

    async def fill() -> None:
        async with await StashOpener(location_of(address))() as stash:
            await stash.record_messages(small_session(1), session_id=SESSION)
            await stash.store.put_note(SESSION, ProxiedSession(last_at=time.time(), unread=2))

    asyncio.run(fill())
    for command in (["sessions"], ["doctor"]):
        assert run(command) in (0, 1)
    printed = capsys.readouterr()
    assert "neither recorded nor in the bill: 2 requests." in printed.out
    assert "postgresql://tests@" in printed.out
    assert "s3cret" not in printed.out + printed.err


PUBLIC = "https://stash.example/mcp"


class Served:
    """A server process, under a public name too."""

    def __init__(self, address: str, database: Path) -> None:
        self.address = address
        self.database = database
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
    with started(http_command(database)) as (_, address):
        reply = httpx2.get(address.replace("/mcp", "/healthz"), headers={"host": "10.1.2.3:8787"})
        assert (reply.status_code, reply.text) == (200, "ok\n")
        refused = initialize(address, **bearer("cst_" + "x" * 43))
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")


async def takes_connections(address: str) -> bool:
    try:
        async with httpx2.AsyncClient(timeout=5) as another:
            await another.get(address)
    except httpx2.ConnectError:
        return False
    return True


async def test_after_sigterm_running_requests_end_and_new_ones_are_refused(tmp_path: Path) -> None:
    database = tmp_path / "s.db"
    sent, release = anyio.Event(), anyio.Event()
    call = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_sessions","arguments":{}}}'

    async def slow_body() -> Any:
        yield call[:10]
        sent.set()
        await release.wait()
        yield call[10:]

    with started(http_command(database)) as (process, address):
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
            with anyio.fail_after(60):
                while await takes_connections(address):  # noqa: ASYNC110
                    await anyio.sleep(0.1)
            release.set()
        assert replies[0].status_code == 200
        assert '"sessions":[]' in replies[0].text
        assert process.wait(timeout=30) == 0
