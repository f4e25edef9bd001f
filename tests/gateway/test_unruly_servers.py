"""A server whose lists never end, never settle or imitate another's, and one whose errors look like a lost connection,
harm nobody else."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import pytest
from mcp import MCPError
from mcp.types import Tool

from contextstash.gateway.directory import Directory
from contextstash.gateway.servers.offers import Offer
from contextstash.process.plain_logs import printable
from tests.support import unruly_upstream
from tests.support.gateways import gateway, server, text_of, tool_names


def offer(*names: str) -> Offer:
    return Offer(tools=tuple(Tool(name=name, input_schema={"type": "object"}) for name in names))


def test_no_server_offers_a_name_with_the_prefix_of_another() -> None:
    found = Directory.of({"files": offer("read"), "evil": offer("read", "files__read", "Files__write")})
    assert {name: origin for name, (origin, _) in found.tools.items()} == {
        "files__read": ("files", "read"),
        "evil__read": ("evil", "read"),
        "evil__files__read": ("evil", "files__read"),
        "evil__Files__write": ("evil", "Files__write"),
    }


def test_ten_thousand_names_that_become_equal_are_numbered() -> None:
    names = [f"x{chr(0x4E00 + number)}" for number in range(10_000)]  # quadratic work would take minutes
    found = Directory.of({"evil": offer(*names)}).tools
    assert len(found) == len(names)
    assert {"evil__x_", "evil__x__2", "evil__x__10000"} <= set(found)


def test_a_log_line_has_no_control_characters() -> None:
    assert printable("server '\x1b[2J' said\r\nERROR: \u202eforged") == "server ' [2J' said  ERROR:  forged"


@pytest.mark.slow
@pytest.mark.processes
async def test_lists_without_end_are_cut_and_read_again_only_now_and_then(tmp_path: Path) -> None:
    counter = tmp_path / "listed"
    unruly = {"command": sys.executable, "args": [str(Path(unruly_upstream.__file__)), str(counter)]}
    async with gateway(tmp_path, {"unruly": unruly, "one": server("one")}) as client:
        with anyio.fail_after(60):
            assert len(await tool_names(client)) < 1_100
            assert text_of(await client.call_tool("only_one")) == "from one"
            with pytest.raises(MCPError, match="no rights for tools/call"):  # not as if its server had ended
                await client.call_tool("fail")
            await anyio.sleep(3)
            result = await client.call_tool("ask")  # the gateway does not keep thousands of its requests
            assert "'unruly' ended while 'ask' ran" in text_of(result)
            assert text_of(await client.call_tool("only_one")) == "from one"
    assert int(counter.read_text()) < 20  # without a pause it is hundreds in these seconds
