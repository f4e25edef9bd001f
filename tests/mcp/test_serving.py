"""Server processes: how they start, serve requests and stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from contextstash.cli.app import run
from contextstash.mcp.stdio import round_trip
from contextstash_storage.errors import ContextstashError
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


def test_only_this_machine_is_served(tmp_path: Path) -> None:
    code, errors = run_to_end(http_command(tmp_path / "s.db", "0.0.0.0"))
    assert code != 0
    assert "Serving on 0.0.0.0 would show every session" in errors


@pytest.mark.processes
@pytest.mark.parametrize("program", ["raise SystemExit", "import time; time.sleep(60)"])
async def test_a_server_that_does_not_answer_is_an_error_in_time(program: str) -> None:
    with pytest.raises(ContextstashError, match="did not answer"):
        await round_trip([sys.executable, "-c", program], 0.5)


@pytest.mark.postgres
@pytest.mark.processes
def test_commands_read_the_same_database_and_show_no_password(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    address = new_store_address().url.replace("tests@", "tests:s3cret@")
    monkeypatch.setenv("CONTEXTSTASH_DB", address)
    for command in (["sessions"], ["doctor"]):
        assert run(command) in (0, 1)
    printed = capsys.readouterr()
    assert "postgresql://tests@" in printed.out
    assert "s3cret" not in printed.out + printed.err
