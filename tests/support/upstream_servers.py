"""Servers for a gateway to stand before, as real processes: `python upstream_servers.py NAME`."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.types import CallToolResult, EmbeddedResource, ImageContent, TextContent, TextResourceContents
from pydantic import BaseModel, Field

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def lines(count: int) -> str:
    """A text of that many lines, with one in the middle that matters."""
    texts = [f"line {number} of a long and rather dull output" for number in range(count)]
    texts[count // 2] = f"ERROR: the thing broke at line {count // 2}"
    return "\n".join(texts)


class Record(BaseModel):
    number: int
    text: str


class Records(BaseModel):
    total: int
    records: Annotated[list[Record], Field(max_length=100_000)]


def long_text(count: int = 2_000) -> str:
    """A long text."""
    return lines(count)


def long_string(count: int = 2_000) -> str:
    """A long text, as structured content too."""
    return lines(count)


def records(count: int = 3_000) -> Records:
    """Many records."""
    return Records(total=count, records=[Record(number=n, text=f"record {n}") for n in range(count)])


def mixed() -> CallToolResult:
    """Texts and an image."""
    blocks = [TextContent(type="text", text=f"part {number}: {lines(200)}") for number in range(10)]
    image = ImageContent(type="image", data=PIXEL * 400, mime_type="image/png")
    return CallToolResult(content=[*blocks, image])


def a_file() -> CallToolResult:
    """A file as a resource, as GitHub's server gives one."""
    held = EmbeddedResource(type="resource", resource=TextResourceContents(uri="file:///a", text=lines(2_000)))
    return CallToolResult(content=[TextContent(type="text", text="The file:"), held])


def failing() -> CallToolResult:
    """A long error."""
    return CallToolResult(content=[TextContent(type="text", text=lines(2_000))], is_error=True)


async def counting(ctx: Context, steps: int = 3) -> str:
    """Reports progress."""
    for step in range(steps):
        await ctx.report_progress(step + 1, steps, f"step {step + 1}")
    return "counted"


async def waiting(mark: str) -> None:
    """Never ends unless it is cancelled; writes to a file that it began, and that it was cancelled."""
    path = Path(mark)
    path.with_suffix(".begun").write_text("begun")
    try:
        await anyio.sleep_forever()
    finally:
        path.with_suffix(".cancelled").write_text("cancelled")


def dying() -> str:
    """Ends the connection; the process goes on until the SDK ends it, as one that cleans up for long."""
    os.closerange(0, 1024)
    time.sleep(60)
    return ""


def process_id() -> str:
    """The process's id, and so whether it is still the same."""
    return str(os.getpid())


PLAIN: tuple[Callable[..., Any], ...] = (
    long_text,
    mixed,
    failing,
    a_file,
    a_file,
    counting,
    waiting,
    dying,
    process_id,
)

STRUCTURED: tuple[Callable[..., Any], ...] = (long_string, records)


def speaking(name: str) -> MCPServer[Any]:
    """A server with a tool for each kind of result."""
    server: MCPServer[Any] = MCPServer(name, log_level="ERROR")
    for tool in PLAIN:
        server.add_tool(tool, structured_output=False)
    for structured in STRUCTURED:
        server.add_tool(structured)

    @server.tool(name=f"only_{name}", structured_output=False)
    def only() -> str:
        """A tool of one server alone."""
        return f"from {name}"

    return server


def environment() -> str:
    """The variables that this process has, names and values."""
    return json.dumps(dict(os.environ))


def long(megabytes: float) -> str:
    """An answer of some megabytes."""
    line = "line of a long and rather dull output, with a word or two\n"
    return line * int(megabytes * 1_000_000 / len(line) + 1)


def naming(names: Sequence[str]) -> MCPServer[Any]:
    """A server with tools of any names, which answer with them."""
    server: MCPServer[Any] = MCPServer("raw", log_level="ERROR")
    for tool in (environment, long):
        server.add_tool(tool, structured_output=False)
    for name in names:

        def answer(length: int = 0, name: str = name) -> str:
            return f"raw {name}" + length * "x"

        server.add_tool(answer, name=name, structured_output=False)
    return server


def main(kind: str, *rest: str) -> None:
    if kind == "silent":
        time.sleep(600)
    elif kind == "garbage":
        sys.stdout.write("this is no protocol\n{]\n")
        sys.stdout.flush()
        sys.stdin.read()
    elif kind == "naming":
        naming(rest).run("stdio")
    elif kind == "http":
        speaking(rest[0]).run("streamable-http", port=int(rest[1]))
    else:
        speaking(kind).run("stdio")


if __name__ == "__main__":
    main(*sys.argv[1:])
