"""Claude Code's status line: what it says of a window, of what was given back, and of the cost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from contextstash.clients.status_line import line_of
from contextstash_storage.sqlite import open_sqlite
from contextstash_storage.sqlite.glance import Glance, glance
from tests.support.stored_sessions import SESSION, new_session

USAGE = {
    "input_tokens": 8_500,
    "output_tokens": 1_200,
    "cache_creation_input_tokens": 5_000,
    "cache_read_input_tokens": 48_000,
}
EVENT: dict[str, Any] = {
    "session_id": SESSION,
    "context_window": {"context_window_size": 200_000, "used_percentage": 31, "current_usage": USAGE},
    "cost": {"total_cost_usd": 1.234},
}


def test_the_line_has_the_window_what_was_given_back_and_the_cost() -> None:
    found = Glance(handoffs=1, outputs=12, pruned=42_100)
    assert line_of(EVENT, {}, found) == (
        "62k of 200k 31 %, compacts at 167k · 1 hand-off, 12 outputs archived, 42k pruned · $1.23"
    )


def test_a_smaller_window_that_the_user_has_set_moves_the_compaction() -> None:
    assert "compacts at 67k" in line_of(EVENT, {"CLAUDE_CODE_AUTO_COMPACT_WINDOW": "100000"}, None)


@pytest.mark.parametrize(
    ("event", "says"),
    [
        ({}, "contextstash"),
        ({"context_window": None, "cost": "?"}, "contextstash"),
        ({"context_window": {"context_window_size": 200_000, "used_percentage": 50}}, "100k of 200k 50 %, compacts"),
        ({"context_window": {"current_usage": USAGE}}, "62k"),
        ({"cost": {"total_cost_usd": 0}}, "$0.00"),
    ],
)
def test_a_field_that_is_absent_is_left_out(event: dict[str, Any], says: str) -> None:
    assert line_of(event, {}, None).startswith(says)


async def test_a_glance_reads_a_session_that_is_open_elsewhere(tmp_path: Path) -> None:
    store = await open_sqlite(tmp_path / "sessions.db")
    try:
        await new_session(store, SESSION)
        assert glance(tmp_path / "sessions.db", SESSION, f"{SESSION}.outputs") == Glance()
        assert glance(tmp_path / "sessions.db", "another", "another.outputs") is None
    finally:
        await store.close()


@pytest.mark.parametrize("content", [None, b"no database" * 100])
def test_a_database_that_cannot_be_read_is_no_error(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "sessions.db").write_bytes(content)
    assert glance(tmp_path / "sessions.db", SESSION, "x") is None
    assert (tmp_path / "sessions.db").exists() == (content is not None)


@pytest.mark.processes
@pytest.mark.parametrize("typed", [json.dumps(EVENT), "", "{", "[]", '{"session_id": 3}'])
def test_the_command_always_prints_one_line(tmp_path: Path, typed: str) -> None:
    command = [sys.executable, "-m", "contextstash", "statusline", "--db", str(tmp_path / "sessions.db")]
    done = subprocess.run(command, input=typed, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.processes
def test_the_command_imports_nothing_heavy(tmp_path: Path) -> None:
    program = (
        "import sys; sys.argv = ['contextstash', 'statusline']\n"
        "import atexit, os\n"
        "os._exit = lambda code: print(sorted({'pydantic', 'click', 'asyncio', 'mcp', 'rich'} & set(sys.modules)))\n"
        "from contextstash.__main__ import main\n"
        "try:\n    main()\nexcept BaseException: pass\n"
    )
    done = subprocess.run([sys.executable, "-c", program], input=json.dumps(EVENT), capture_output=True, text=True)
    assert "[]" in done.stdout.splitlines(), done.stdout + done.stderr
