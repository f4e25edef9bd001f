"""A response of many megabytes is archived or refused; no other call waits for it, and memory stays bounded."""

from __future__ import annotations

import pickle
import re
import time
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.client import stdio

from contextstash.cli.options import settings_from
from contextstash.gateway.servers.lines import Overlong, answered_id, lines_of
from contextstash.gateway.servers.worker import count_of_values
from tests.support.gateways import gateway, original, raw_server, server, text_of
from tests.support.raw_upstream import prose
from tests.support.servers import MODES, Mode
from tests.support.upstream_servers import lines

pytestmark = pytest.mark.processes

MAX_OTHER_CALL_SECONDS = 3.0
"""Of a call while another server's response is parsed: measured 0.1 on an idle machine, and 12.5 when the event loop
parsed it."""


def handle_in(text: str) -> str:
    found = re.search(r"out_[0-9a-z]+", text)
    assert found, text[:500]
    return found.group()


async def shaped(client: Client, shape: str, megabytes: float, **more: Any) -> Any:
    return await client.call_tool("shaped", {"shape": shape, "megabytes": megabytes, **more})


def test_the_settings_of_the_command_line_can_be_sent_to_a_worker_process() -> None:
    found = settings_from("rolling", ())
    sent = pickle.loads(pickle.dumps(found))
    assert sent.settings_layer("an-agent") == found.settings_layer("an-agent")
    assert sent.may_call_model("an-agent") == found.may_call_model("an-agent")


@pytest.mark.parametrize("id_last", [False, True])
async def test_a_response_over_the_limit_is_an_error_result_and_the_server_keeps_working(
    tmp_path: Path, id_last: bool
) -> None:
    async with gateway(tmp_path, {"raw": raw_server()}) as client:
        result = await shaped(client, "prose", 20, id_last=id_last)
        assert result.is_error
        assert re.search(r"returned 20,\d{3},\d{3} bytes, and the maximum is 8,388,608\.", text_of(result))
        assert "max_answer_bytes" in text_of(result)
        assert text_of(await client.call_tool("twice")) == "first"


async def test_the_limit_of_a_server_can_be_set(tmp_path: Path) -> None:
    async with gateway(tmp_path, {"raw": raw_server(max_answer_bytes=100_000)}) as client:
        assert "the maximum is 100,000." in text_of(await shaped(client, "prose", 0.2))
        assert not (await shaped(client, "prose", 0.05)).is_error


@pytest.mark.parametrize("mode", MODES)
async def test_a_large_text_is_archived_whole_from_any_server(tmp_path: Path, mode: Mode) -> None:
    async with gateway(tmp_path, {"one": server("one"), "raw": raw_server()}, mode=mode) as client:
        shown = text_of(await client.call_tool("long_text", {"count": 6_000}))
        assert len(shown) <= 20_000
        assert await original(client, handle_in(shown)) == lines(6_000)
        if mode == "legacy":
            shown = text_of(await shaped(client, "prose", 0.2, id_last=True))
            [block] = prose(200_000)["content"]
            assert await original(client, handle_in(shown)) == block["text"]


async def test_large_records_are_shortened_and_large_images_and_errors_are_not(tmp_path: Path) -> None:
    async with gateway(tmp_path, {"raw": raw_server(limits={"chars": 4_000, "tokens": None})}) as client:
        both = await shaped(client, "both", 2)
        assert count_of_values(both.structured_content) < 2_000
        [image] = (await shaped(client, "picture", 2)).content
        assert image.data == "QUJD" * 500_000
        failed = await shaped(client, "failed", 1)
        assert failed.is_error
        assert len(text_of(failed)) == 1_000_000


async def test_structured_content_with_too_many_values_is_archived(tmp_path: Path) -> None:
    unlimited = {"chars": None, "lines": None, "bytes": None, "tokens": None}
    async with gateway(tmp_path, {"raw": raw_server(limits=unlimited)}) as client:
        result = await shaped(client, "dense", 1)
        assert result.is_error
        page = await client.call_tool("get_archived_output", {"handle": handle_in(text_of(result)), "max_tokens": 500})
        assert page.structured_content
        assert page.structured_content["text"].startswith('{"rows": [{"n": 0')


def peak_memory(folder: Path) -> int:
    """The peak memory of the gateway for this folder's servers, in megabytes."""
    for process in Path("/proc").iterdir():
        try:
            command = (process / "cmdline").read_bytes().decode().split("\0")
            if "gateway" in command and str(folder / "servers.json") in command:
                found = re.search(r"VmHWM:\s+(\d+)", (process / "status").read_text())
                return int(found[1]) // 1024 if found else 0
        except OSError:
            continue
    raise LookupError


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads memory as Linux shows it")
@pytest.mark.parametrize(("shape", "megabytes"), [("dense", 7), ("prose", 50)])
async def test_other_calls_are_served_and_memory_is_bounded(tmp_path: Path, shape: str, megabytes: int) -> None:
    async with gateway(tmp_path, {"raw": raw_server(), "two": server("two")}) as client:
        await client.call_tool("only_two")
        before = peak_memory(tmp_path)
        took = []
        async with anyio.create_task_group() as group:
            scope = anyio.Event()

            async def large() -> None:
                await shaped(client, shape, megabytes)
                scope.set()

            group.start_soon(large)
            while not scope.is_set():
                begun = time.monotonic()
                assert text_of(await client.call_tool("only_two")) == "from two"
                took.append(time.monotonic() - begun)
        assert max(took) < MAX_OTHER_CALL_SECONDS
        assert peak_memory(tmp_path) - before < 100


async def test_an_endless_line_ends_only_the_connection_of_its_server(tmp_path: Path) -> None:
    async with gateway(tmp_path, {"raw": raw_server(), "two": server("two")}) as client:
        result = await client.call_tool("endless", {"megabytes": 20})
        assert result.is_error
        assert "ended while 'endless' ran" in text_of(result)
        assert text_of(await client.call_tool("only_two")) == "from two"
        assert text_of(await client.call_tool("twice")) == "first"


async def test_unexpected_and_repeated_responses_and_noise_are_ignored(tmp_path: Path) -> None:
    async with gateway(tmp_path, {"raw": raw_server()}) as client:
        for _ in range(3):
            assert text_of(await client.call_tool("twice")) == "first"
        assert text_of(await client.call_tool("flood")) == "done"
        with anyio.move_on_after(0.05):
            await shaped(client, "prose", 4)
        assert text_of(await client.call_tool("twice")) == "first"


class Chunks:
    """A stream that yields the given chunks."""

    def __init__(self, *chunks: bytes) -> None:
        self._chunks = list(chunks)

    async def receive(self) -> bytes:
        if not self._chunks:
            raise anyio.EndOfStream
        return self._chunks.pop(0)


async def test_lines_are_split_wherever_the_chunks_end() -> None:
    chunks = Chunks(b'{"a', b'":1}\n{"b":2}\n{', b'"' + b"x" * 50, b"y" * 50, b'"}\n{"c":3}\n', b"rest")
    found = [line async for line in lines_of(chunks, 20)]
    assert found == [
        b'{"a":1}',
        b'{"b":2}',
        Overlong(b'{"' + b"x" * 50, b'{"' + b"x" * 50 + b"y" * 50 + b'"}', 104),
        b'{"c":3}',
    ]


@pytest.mark.parametrize(
    ("line", "number"),
    [
        (b'{"jsonrpc":"2.0","id":7,"result":{}}', 7),
        (b'{ "id" : "seven", "jsonrpc": "2.0", "error": {}}', "seven"),
        (b'{"result":{},"jsonrpc":"2.0","id":7}', 7),
        (b'{"jsonrpc":"2.0","result":{"id":3},"id":7}', 7),
        (b'{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":{}}', None),
        (b'{"result":{"content":[],"id":3}}', None),
        (b'{"result":{"text":"}, \\"id\\":3}"}}', None),
        (b"[]", None),
    ],
)
def test_the_id_of_a_response_is_found_at_one_end_of_its_line(line: bytes, number: int | str | None) -> None:
    assert answered_id(line, line) == number


@pytest.mark.parametrize(
    "name",
    ["_get_executable_command", "_create_platform_compatible_process", "_drain_stdout", "_stop_server_process"],
)
def test_the_sdk_still_has_the_private_functions_that_start_and_stop_a_process(name: str) -> None:
    assert callable(getattr(stdio, name, None)), f"the SDK renamed {name}: adapt contextstash.gateway.servers.process"
