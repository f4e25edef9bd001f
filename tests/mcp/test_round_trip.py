"""The round trip of `doctor`: what it says of servers that do not answer."""

from __future__ import annotations

import sys

import pytest

from contextstash.mcp.stdio import round_trip
from contextstash_storage.errors import ContextstashError

pytestmark = pytest.mark.processes


@pytest.mark.parametrize("program", ["raise SystemExit", "import time; time.sleep(60)", "print('no JSON', flush=True)"])
async def test_a_server_that_does_not_answer_is_an_error_in_time(program: str) -> None:
    with pytest.raises(ContextstashError, match="did not answer"):
        await round_trip([sys.executable, "-c", program], 0.5)
