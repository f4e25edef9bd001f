"""The server on a real PostgreSQL: record, prune, retrieve and search, as a client does it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters

from contextstash.cli.app import run
from tests.support.postgres_server import new_store_address

pytestmark = [pytest.mark.postgres, pytest.mark.processes]

NEEDLE = "the needle is in the haystack"


def conversation() -> list[dict[str, object]]:
    messages: list[dict[str, object]] = [{"role": "user", "content": "look around"}]
    for number in range(8):
        call = {"id": f"call_{number}", "type": "function", "function": {"name": "Bash", "arguments": "{}"}}
        output = "\n".join(f"line {line} of output {number}" for line in range(200))
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"call_{number}", "content": f"{output}\n{NEEDLE} {number}"})
    return [*messages, {"role": "assistant", "content": "done"}]


async def test_a_session_is_recorded_pruned_searched_and_retrieved(tmp_path: Path) -> None:
    address = new_store_address().given
    command = ["-m", "contextstash", "serve", "--tools", "all", "--db", address]
    parameters = StdioServerParameters(command=sys.executable, args=command, env=dict(os.environ))
    async with Client(parameters, read_timeout_seconds=60) as client:
        arguments = {"session_id": "job", "messages": conversation(), "format": "openai-chat"}
        recorded = await client.call_tool("record_messages", arguments)
        assert recorded.structured_content is not None
        assert recorded.structured_content["recorded"] == 18
        pruned = await client.call_tool(
            "prune_tool_outputs", {"session_id": "job", "keep_last": 2, "protect_tokens": 0, "minimum_tokens": 0}
        )
        assert pruned.structured_content is not None
        assert len(pruned.structured_content["archived"]) >= 4
        handle = pruned.structured_content["archived"][0]["handle"]
        found = await client.call_tool("search_history", {"session_id": "job", "query": "needle haystack"})
        assert NEEDLE in str(found.structured_content)
        text = await client.call_tool("get_archived_output", {"handle": handle, "pattern": "needle"})
        assert NEEDLE in str(text.structured_content)


def test_commands_read_the_same_database_and_show_no_password(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    address = new_store_address().given.replace("tests@", "tests:s3cret@")
    monkeypatch.setenv("CONTEXTSTASH_DB", address)
    for command in (["sessions"], ["doctor"]):
        assert run(command) in (0, 1)
    printed = capsys.readouterr()
    assert "postgresql://tests@" in printed.out
    assert "s3cret" not in printed.out + printed.err
