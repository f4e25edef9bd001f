"""The gateway with real servers: long outputs are archived and shown in part, and no server takes the name of one of
our tools, or of one with which a host asks its user; one that is slow, dead or malformed does not affect the others."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import MCPError
from mcp.types import ImageContent, ToolListChangedNotification

from contextstash.events.calls import ASKING_TOOLS
from contextstash.outputs.placeholders import own_tool
from tests.support.gateways import SCRIPT, appears, gateway, original, server, text_of, tool_names
from tests.support.provider import Asked, Sent, served
from tests.support.servers import MODES, Mode
from tests.support.upstream_servers import PIXEL, lines

pytestmark = pytest.mark.processes

SHORT = ("--set", "output_bytes=4000")


def handle_in(text: str) -> str:
    found = re.search(r"out_[0-9a-z]+", text)
    assert found, text[:500]
    return found.group()


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
async def test_a_long_text_is_shown_as_a_preview_with_the_handle_of_the_whole(tmp_path: Path, mode: Mode) -> None:
    async with gateway(tmp_path, {"one": server("one")}, *SHORT, mode=mode) as client:
        shown = text_of(await client.call_tool("one__long_text", {"count": 2_000}))
        assert len(shown) <= 4_000
        assert "ERROR: the thing broke at line 1000" in shown
        assert await original(client, handle_in(shown)) == lines(2_000)


async def test_by_default_an_output_is_shown_up_to_twenty_thousand_characters(tmp_path: Path) -> None:
    async with gateway(tmp_path, {"one": server("one")}) as client:
        assert text_of(await client.call_tool("one__long_text", {"count": 400})) == lines(400)
        assert len(text_of(await client.call_tool("one__long_text", {"count": 2_000}))) <= 20_000


async def test_structured_content_is_left_out_if_its_text_was_cut_and_stays_otherwise(tmp_path: Path) -> None:
    async with gateway(tmp_path, {"one": server("one")}, *SHORT) as client:
        assert all(
            tool.output_schema is None for tool in (await client.list_tools()).tools if tool.name == "one__records"
        )
        cut = await client.call_tool("one__records", {"count": 3_000})
        assert cut.structured_content is None
        assert len(text_of(cut)) <= 4_000
        assert '"number": 2999' in await original(client, handle_in(text_of(cut)))
        short = await client.call_tool("one__long_string", {"count": 10})
        assert short.structured_content == {"result": lines(10)}


async def test_many_text_blocks_are_shortened_as_one_text_and_images_are_unchanged(tmp_path: Path) -> None:
    async with gateway(tmp_path, {"one": server("one")}, *SHORT) as client:
        result = await client.call_tool("one__mixed")
        text, image = result.content
        assert len(text_of(result)) <= 4_000
        whole = await original(client, handle_in(text_of(result)))
        assert whole == "\n".join(f"part {number}: {lines(200)}" for number in range(10))
        assert text.type == "text"
        assert isinstance(image, ImageContent)
        assert image.data == PIXEL * 400


async def test_the_text_of_a_resource_is_shortened_too(tmp_path: Path) -> None:
    async with gateway(tmp_path, {"one": server("one")}, *SHORT) as client:
        result = await client.call_tool("one__a_file")
        assert [block.type for block in result.content] == ["text"]
        assert len(text_of(result)) <= 4_000
        assert await original(client, handle_in(text_of(result))) == f"The file:\n{lines(2_000)}"


async def test_an_error_is_passed_on_unchanged(tmp_path: Path) -> None:
    async with gateway(tmp_path, {"one": server("one")}, *SHORT) as client:
        result = await client.call_tool("one__failing")
        assert (result.is_error, text_of(result)) == (True, lines(2_000))


async def test_each_tool_has_its_servers_name_before_its_own_and_ours_is_the_last(tmp_path: Path) -> None:
    async with gateway(tmp_path, {"one": server("one"), "two": server("two")}) as client:
        names = await tool_names(client)
        assert {"one__long_text", "two__long_text", "one__only_one", "two__only_two"} <= set(names)
        assert len(names) == len(set(names))
        assert names[-1] == "get_archived_output"
        assert text_of(await client.call_tool("two__only_two")) == "from two"
        with pytest.raises(MCPError, match="There is no tool 'only_two'"):
            await client.call_tool("only_two")


async def test_progress_is_passed_on(tmp_path: Path) -> None:
    seen: list[tuple[float, float | None, str | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total, message))

    async with gateway(tmp_path, {"one": server("one")}) as client:
        result = await client.call_tool("one__counting", {"steps": 3}, progress_callback=note)
        assert text_of(result) == "counted"
    assert seen == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]


async def test_a_cancelled_call_is_cancelled_at_its_server(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    async with gateway(tmp_path, {"one": server("one")}) as client:
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "one__waiting", {"mark": str(mark)})
            await appears(mark.with_suffix(".begun"))
            group.cancel_scope.cancel()
        await appears(mark.with_suffix(".cancelled"))
        assert text_of(await client.call_tool("one__only_one")) == "from one"


IMPOSTORS = ("get_archived_output", "search_history", "delete_session", *sorted(ASKING_TOOLS))


@pytest.mark.parametrize("name", ["raw", "contextstash", "_"])
async def test_an_impostors_tools_are_neither_taken_for_ours_nor_for_the_users_words(tmp_path: Path, name: str) -> None:
    async with gateway(tmp_path, {name: server("naming", *IMPOSTORS)}) as client:
        *theirs, ours = await tool_names(client)
        assert ours == "get_archived_output"
        assert not ASKING_TOOLS & set(theirs)
        assert not [each for each in theirs if own_tool(f"mcp__contextstash__{each}")]
        [fetched] = [each for each in theirs if "get_archived_output" in each]
        assert len(text_of(await client.call_tool(fetched, {"length": 30_000}))) <= 20_000
        assert "raw" not in text_of(await client.call_tool(ours, {"handle": "out_none"}))


async def test_two_tools_whose_names_become_equal_are_both_offered(tmp_path: Path) -> None:
    named_c = server("naming", "c")
    servers = {"a": server("naming", "b__c", "list.files", "list/files"), "a__b": named_c, "a b": named_c}
    async with gateway(tmp_path, servers) as client:
        *theirs, _ = await tool_names(client)
        assert len({*theirs}) == 5 + 2 * len(servers)  # each has two more
        assert {"a__b__c", "a__list_files", "a__list_files_2"} <= {*theirs}


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
        os.kill(int(after), signal.SIGKILL)  # while no call runs: the next one gets another process, and no error
        await anyio.sleep(0.5)
        assert text_of(await client.call_tool("one__process_id")) not in (before, after)


def is_open(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def http_upstream() -> Iterator[str]:
    """The address of a test server over streamable HTTP."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with subprocess.Popen([sys.executable, SCRIPT, "http", "web", str(port)], stderr=subprocess.DEVNULL) as process:
        try:
            give_up = time.monotonic() + 30
            while not is_open(port):
                assert time.monotonic() < give_up
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.terminate()


class Forgetful:
    """A server over HTTP as of protocol 2025-06-18, which forgets its sessions when it starts anew."""

    def __init__(self) -> None:
        self.sessions: set[str] = set()
        self.called = 0

    def say(self, asked: Asked) -> Sent:
        """The answer to a request."""
        message = asked.body
        method, number = message.get("method"), message.get("id")
        if asked.method != "POST":
            return Sent(405, b"")
        if method == "initialize":
            self.sessions.add(name := f"session-{len(self.sessions)}-{self.called}")
            about = {"serverInfo": {"name": "old", "version": "1"}, "capabilities": {"tools": {}}}
            result = {"protocolVersion": "2025-06-18", **about}
            return Sent(200, {"jsonrpc": "2.0", "id": number, "result": result}, {"mcp-session-id": name})
        if asked.headers.get("mcp-session-id") not in self.sessions:
            error = {"code": -32600, "message": "Session not found"}
            return Sent(404, {"jsonrpc": "2.0", "id": None, "error": error})
        if number is None:
            return Sent(202, b"")
        tools = {"tools": [{"name": "hello", "inputSchema": {"type": "object"}}]}
        self.called += method == "tools/call"
        if self.called > 3:
            error = {"code": -32600, "message": "Your session of the shop has ended"}
            return Sent(200, {"jsonrpc": "2.0", "id": number, "error": error})
        said = {"content": [{"type": "text", "text": f"hello {self.called}"}]}
        return Sent(200, {"jsonrpc": "2.0", "id": number, "result": tools if method == "tools/list" else said})


async def test_a_call_to_a_server_that_knows_the_session_no_more_is_made_in_a_new_one(tmp_path: Path) -> None:
    upstream = Forgetful()
    with served(upstream.say) as address:
        async with gateway(tmp_path, {"old": {"url": f"{address}/mcp"}}) as client:
            for count in range(1, 4):
                assert text_of(await client.call_tool("old__hello")) == f"hello {count}"
                upstream.sessions.clear()
            with pytest.raises(MCPError, match="of the shop"):  # an error of its own is no lost session
                await client.call_tool("old__hello")
            assert upstream.called == 4


async def test_a_client_is_told_to_list_again_when_a_slow_server_has_started(tmp_path: Path) -> None:
    told = anyio.Event()

    async def hear(message: Any) -> None:
        if isinstance(message, ToolListChangedNotification):
            told.set()

    slow = {"command": "sh", "args": ["-c", f'sleep 12; exec "{sys.executable}" "{SCRIPT}" one']}
    async with gateway(tmp_path, {"one": slow}, mode="legacy", hear=hear) as client:
        assert await tool_names(client) == ["get_archived_output"]
        with anyio.fail_after(30):
            await told.wait()
        assert "one__only_one" in await tool_names(client)


async def test_a_server_over_http_works_like_one_over_stdio(tmp_path: Path) -> None:
    with http_upstream() as url:
        async with gateway(tmp_path, {"web": {"url": url}, "one": server("one")}) as client:
            assert text_of(await client.call_tool("web__only_web")) == "from web"
            assert len(text_of(await client.call_tool("web__long_text", {"count": 2_000}))) <= 20_000
