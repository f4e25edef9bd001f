"""A call that a client relays to an MCP server is read as one of that server's tool."""

from __future__ import annotations

import json
from typing import Any

import pytest

from contextstash.formats import get_format
from contextstash_storage.records import Block

INNER = {"query": "leak", "limit": 3}


def read(name: str, arguments: Any, format_name: str = "anthropic") -> Block:
    """The block of a call."""
    use = {"type": "tool_use", "id": "c1", "name": name, "input": arguments}
    chat = {"id": "c1", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    body = {"content": [use]} if format_name == "anthropic" else {"content": None, "tool_calls": [chat]}
    [block] = get_format(format_name).read({"role": "assistant", **body}).blocks
    return block


@pytest.mark.parametrize("format_name", ["anthropic", "openai-chat"])
@pytest.mark.parametrize("inner", [INNER, json.dumps(INNER)], ids=["object", "text"])
def test_a_relayed_call_has_the_servers_tool_and_its_main_argument(format_name: str, inner: Any) -> None:
    given = {"server_name": "github", "tool_name": "search", "arguments": inner}
    block = read("use_mcp_tool", given, format_name)
    assert (block.tool, block.argument) == ("github/search", "leak")


@pytest.mark.parametrize("given", [{}, {"server_name": "x"}, {"server_name": 1, "tool_name": 2}])
def test_a_relayed_call_without_names_keeps_the_clients(given: dict[str, Any]) -> None:
    assert read("use_mcp_tool", given).tool == "use_mcp_tool"


def test_any_other_tool_keeps_its_name_and_arguments() -> None:
    block = read("call_tool", {"server_name": "github", "tool_name": "search", "query": "leak"})
    assert (block.tool, block.argument) == ("call_tool", "leak")
