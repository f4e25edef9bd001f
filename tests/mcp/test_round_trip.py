"""The round trip of `doctor`: what it says of servers that do not answer."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from contextstash.clients.installation import own_command
from contextstash.mcp.stdio import round_trip
from contextstash_storage.errors import ContextstashError

pytestmark = pytest.mark.processes


async def test_our_server_lists_its_tools_and_counts(tmp_path: Path) -> None:
    tools, tokens = await round_trip([*own_command(), "serve", "--db", str(tmp_path / "sessions.db")], 30)
    assert tools >= 8
    assert tokens > 0


@pytest.mark.parametrize("program", ["raise SystemExit", "import time; time.sleep(60)", "print('no JSON', flush=True)"])
async def test_a_server_that_does_not_answer_is_an_error_in_time(program: str) -> None:
    with pytest.raises(ContextstashError, match="did not answer"):
        await round_trip([sys.executable, "-c", program], 0.5)
