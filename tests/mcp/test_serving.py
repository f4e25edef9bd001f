"""Server processes: how they start, serve requests and stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from contextstash.configuration.database import data_folder, default_database
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
    record,
    run_to_end,
    small_session,
    stdio_command,
    talking,
)

pytestmark = pytest.mark.processes

RECORD = {
    "jsonrpc": "2.0",
    "id": 2,
    "method": "tools/call",
    "params": {
        "name": "record_messages",
        "arguments": {"session_id": SESSION, "messages": small_session(1)},
    },
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


async def test_a_batch_of_many_megabytes_is_recorded_over_http(tmp_path: Path) -> None:
    large = {"role": "user", "content": "word " * 1_600_000}
    database = tmp_path / "s.db"
    with http_server(database) as address:
        async with http_client(address, local_token(database)) as client:
            recorded = await answer(client, "record_messages", session_id=SESSION, messages=[large])
    assert recorded["recorded"] == 1


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "example.invalid"])
def test_only_this_machine_is_served(tmp_path: Path, host: str) -> None:
    code, errors = run_to_end(http_command(tmp_path / "s.db", host))
    assert code != 0
    assert f"Serving on {host} would show every session" in errors


def test_the_database_can_be_named_by_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CONTEXTSTASH_DB", str(tmp_path / "mine.db"))
    assert default_database() == tmp_path / "mine.db"
    monkeypatch.delenv("CONTEXTSTASH_DB")
    usual = default_database()
    assert isinstance(usual, Path)
    assert usual.name == "sessions.db"
    assert "contextstash" in usual.parent.name
    assert data_folder() == usual.parent


def test_files_beside_a_database_on_a_server_are_in_the_users_data_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    beside = data_folder()
    monkeypatch.setenv("CONTEXTSTASH_DB", "postgresql://me:secret@db.example/stash")
    assert str(default_database()) == "postgresql://me@db.example/stash"
    assert data_folder() == beside
