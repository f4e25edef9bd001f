"""Servers as real processes, and a small session to try them on."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, TextContent

from contextstash.mcp.tokens import create_token
from contextstash.operations import SCOPES
from contextstash_storage.databases import location_of, open_store
from tests.support.effort import THOROUGH
from tests.support.stashes import called


def missing_from(text: str, structured: Any) -> list[str]:
    """The values of a JSON object that its text does not hold. Numbers may have separators in the text."""
    without_separators = text.replace(",", "")
    return [leaf for leaf in leaves(structured) if leaf not in text and leaf not in without_separators]


def leaves(value: Any) -> Iterator[str]:
    """The strings and numbers in a JSON value, as text."""
    if isinstance(value, dict):
        for each in value.values():
            yield from leaves(each)
    elif isinstance(value, list):
        for each in value:
            yield from leaves(each)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


Mode = Literal["auto", "legacy"]
MODES: tuple[Mode, ...] = ("auto", "legacy") if THOROUGH else ("auto",)

SESSION = "parser-fix"

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}
READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}
"""What a client begins with."""


def stdio_command(database: Path, tools: str = "all") -> list[str]:
    """The command that serves this database over stdio."""
    code = (
        "import sys, pathlib; from contextstash.mcp.stdio import serve_stdio;"
        " from contextstash.stash_opener import StashOpener;"
        " serve_stdio(StashOpener(pathlib.Path(sys.argv[1])), sys.argv[2])"
    )
    return [sys.executable, "-c", code, str(database), tools]


def http_command(database: Path | str, host: str = "127.0.0.1", tools: str = "all", **options: object) -> list[str]:
    """The command that serves this database over HTTP on a free port, with more options."""
    code = (
        "import sys; from contextstash.mcp.http import serve_http;"
        " from contextstash.stash_opener import StashOpener;"
        " from contextstash_storage.databases import location_of;"
        " serve_http(StashOpener(location_of(sys.argv[1])), sys.argv[2], sys.argv[3], 0, **eval(sys.argv[4]))"
    )
    return [sys.executable, "-c", code, str(database), tools, host, repr(options)]


@asynccontextmanager
async def stdio_client(database: Path, mode: Mode = "auto", tools: str = "all") -> AsyncIterator[Client]:
    """The SDK's own client, connected to a server process of its own."""
    command = stdio_command(database, tools)
    parameters = StdioServerParameters(command=command[0], args=command[1:])
    async with Client(parameters, mode=mode, read_timeout_seconds=60) as client:
        yield client


@contextmanager
def started(command: list[str], **how: Any) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server process and its address, when it listens."""
    pipes: Any = {"stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, **pipes, **how) as process:
        try:
            assert process.stderr
            line = process.stderr.readline()
            found = re.search(r"http://\S+", line)
            assert found, line + process.stderr.read()
            assert "token create NAME --db" in line or "token create" not in line
            yield process, found[0]
        finally:
            process.kill()


@contextmanager
def ended_by_sigterm(command: list[str], **how: Any) -> Iterator[str]:
    """The address of a server process, which on leaving must end with exit code 0 by SIGTERM."""
    with started(command, **how) as (process, address):
        try:
            yield address
        finally:
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=30)
        assert process.returncode == 0, errors


def http_server(database: Path | str, **options: Any) -> AbstractContextManager[str]:
    """The address of a process that serves this database over HTTP; on leaving it must end well by SIGTERM."""
    return ended_by_sigterm(http_command(database, **options))


def local_token(database: Path) -> str:
    """A new token for the sessions of this machine's user, which allows everything."""
    return new_token(database, f"local-{secrets.token_hex(4)}", *SCOPES, owner="local")


def new_token(
    database: Path | str, name: str, *scopes: str, owner: str | None = None, days: float | None = None
) -> str:
    """A new token of an owner, by default with the scopes read and write."""

    async def make() -> str:
        store = await open_store(location_of(str(database)))
        expires = None if days is None else datetime.now(UTC) + timedelta(days=days)
        try:
            return await create_token(store, name, owner or name, scopes or ("read", "write"), expires)
        finally:
            await store.close()

    with ThreadPoolExecutor(1) as thread:  # a test has an event loop of its own
        return thread.submit(lambda: asyncio.run(make())).result()


@asynccontextmanager
async def http_client(address: str, token: str, mode: Mode = "auto") -> AsyncIterator[Client]:
    """The SDK's own client, connected to a server over HTTP with a token."""
    headers = {"authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=120) as http:
        transport = streamable_http_client(address, http_client=http)
        async with Client(transport, mode=mode, read_timeout_seconds=120) as client:
            yield client


def small_session(calls: int = 8) -> list[dict[str, Any]]:
    """A task, some files read, and an answer."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You are a careful programmer."},
        {"role": "user", "content": "Fix the parser. Never touch the public API."},
    ]
    for index in range(calls):
        lines = [f"{number}: value_{index}_{number} = compute({number * index})" for number in range(150)]
        lines[70] = f"70: raise ParseError('unexpected token in module {index}')"
        messages += called(index, "read_file", {"path": f"src/module_{index}.py"}, "\n".join(lines))
    return [*messages, {"role": "assistant", "content": "The bug is in module 3, line 70."}]


async def record(client: Client, session_id: str = SESSION, calls: int = 8, **mark: Any) -> dict[str, Any]:
    """Record the small session."""
    return await answer(client, "record_messages", session_id=session_id, messages=small_session(calls), **mark)


async def answer(client: Client, tool: str, /, **arguments: Any) -> dict[str, Any]:
    """A tool's structured content; fails if the tool returns an error, or a text that does not hold all of it."""
    result = await client.call_tool(tool, arguments)
    assert isinstance(result, CallToolResult)
    text = text_of(result)
    assert not result.is_error, text
    assert text
    assert isinstance(result.structured_content, dict)
    assert missing_from(text, result.structured_content) == []
    return result.structured_content


async def error(client: Client, tool: str, **arguments: Any) -> str:
    """The text of the error that a tool returns."""
    result = await client.call_tool(tool, arguments)
    assert isinstance(result, CallToolResult)
    assert result.is_error, result.structured_content
    text = text_of(result)
    assert "Traceback" not in text
    return text


def text_of(result: CallToolResult) -> str:
    """The one text block of a result."""
    [block] = result.content
    assert isinstance(block, TextContent)
    return block.text


@contextmanager
def talking(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A server process that reads and writes lines."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def answered(process: subprocess.Popen[bytes], *messages: dict[str, Any]) -> dict[str, Any]:
    """Send the messages, and wait for the answer to the last of them."""
    assert process.stdin
    assert process.stdout
    process.stdin.write(b"".join(json.dumps(message).encode() + b"\n" for message in messages))
    process.stdin.flush()
    for line in process.stdout:
        reply: dict[str, Any] = json.loads(line)
        if reply.get("id") == messages[-1]["id"]:
            return reply
    raise AssertionError("the server ended without an answer")
