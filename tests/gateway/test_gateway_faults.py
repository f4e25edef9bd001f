"""A server that is slow, dead or malformed does not affect the others."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from mcp import MCPError

from tests.support.command_line import CommandLine, failure_of
from tests.support.gateways import SCRIPT, gateway, server, text_of, tool_names, written

pytestmark = pytest.mark.processes


@pytest.mark.slow
async def test_dead_silent_and_malformed_servers_do_not_affect_the_others(tmp_path: Path) -> None:
    servers = {
        "dead": {"command": "there-is-no-such-program"},
        "silent": server("silent"),
        "garbage": server("garbage"),
        "nowhere": {"url": "http://127.0.0.1:9/mcp"},
        "one": server("one"),
    }
    async with gateway(tmp_path, servers) as client:
        assert "one__only_one" in await tool_names(client)
        assert text_of(await client.call_tool("one__only_one")) == "from one"
        with pytest.raises(MCPError, match=r"'dead' \(No such file or directory: there-is-no-such-program"):
            await client.call_tool("dead__only")


async def test_a_server_that_exits_during_a_call_is_reported_and_started_again(tmp_path: Path) -> None:
    async with gateway(tmp_path, {"one": server("one"), "two": server("two")}) as client:
        before = text_of(await client.call_tool("one__process_id"))
        died = await client.call_tool("one__dying")
        assert died.is_error
        assert "The server 'one' ended while 'dying' ran: it is unknown whether the call took effect." in text_of(died)
        assert text_of(await client.call_tool("two__only_two")) == "from two"
        after = text_of(await client.call_tool("one__process_id"))
        assert after.isdecimal()
        assert after != before


@contextmanager
def http_upstream() -> Iterator[str]:
    """Start a test server over streamable HTTP and yield its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with subprocess.Popen([sys.executable, SCRIPT, "http", "web", str(port)], stderr=subprocess.DEVNULL) as process:
        try:
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.terminate()


async def test_a_server_over_http_works_like_one_over_stdio(tmp_path: Path) -> None:
    with http_upstream() as url:
        await listening(url)
        async with gateway(tmp_path, {"web": {"url": url}, "one": server("one")}) as client:
            assert text_of(await client.call_tool("web__only_web")) == "from web"
            assert len(text_of(await client.call_tool("web__long_text", {"count": 2_000}))) <= 20_000


async def listening(url: str) -> None:
    port = int(url.split(":")[2].split("/")[0])
    with anyio.fail_after(30):
        while True:
            try:
                stream = await anyio.connect_tcp("127.0.0.1", port)
            except OSError:
                await anyio.sleep(0.05)
            else:
                await stream.aclose()
                return


def test_a_file_without_servers_is_refused_in_one_line(contextstash: CommandLine) -> None:
    path = written(contextstash.folder, {})
    assert "names no servers" in failure_of(contextstash.run("gateway", "--config", path))
