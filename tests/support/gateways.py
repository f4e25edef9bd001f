"""Gateways as real processes in front of real servers."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters
from mcp.client.session import MessageHandlerFnT
from mcp.types import CallToolResult, TextContent

from tests.support import upstream_servers
from tests.support.command_line import environment_of
from tests.support.servers import Mode

SCRIPT = str(Path(upstream_servers.__file__))


def server(kind: str, *rest: str) -> dict[str, Any]:
    """The entry of a server of ours in a configuration; one of the kind `naming` has tools of these names."""
    return {"command": sys.executable, "args": [SCRIPT, kind, *rest]}


def written(folder: Path, servers: dict[str, Any]) -> Path:
    """The file of a configuration."""
    path = folder / "servers.json"
    path.write_text(json.dumps({"mcpServers": servers}))
    return path


@asynccontextmanager
async def gateway(
    folder: Path,
    servers: dict[str, Any],
    *options: str,
    mode: Mode = "auto",
    environment: Mapping[str, str] | None = None,
    hear: MessageHandlerFnT | None = None,
) -> AsyncIterator[Client]:
    """The SDK's own client, connected to a gateway in front of these servers; its database and home are in `folder`,
    `environment` is on top of ours, and `hear` gets the notifications."""
    arguments = ["-P", "-m", "contextstash", "gateway", "--config", str(written(folder, servers)), *options]
    parameters = StdioServerParameters(
        command=sys.executable,
        args=[*arguments, "--db", str(folder / "sessions.db")],
        env=environment_of(folder, **(environment or {})),
        cwd=folder,
    )
    async with Client(parameters, mode=mode, read_timeout_seconds=60, cache=None, message_handler=hear) as connected:
        yield connected


async def tool_names(client: Client) -> list[str]:
    return [tool.name for tool in (await client.list_tools()).tools]


async def appears(path: Path) -> None:
    """Waits until another process has made a file, by polling. Raises TimeoutError."""
    with anyio.fail_after(30):
        while not path.exists():  # noqa: ASYNC110
            await anyio.sleep(0.01)


def text_of(result: CallToolResult) -> str:
    """The texts of a result's text blocks."""
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))


async def original(client: Client, handle: str) -> str:
    """The whole of an archived output, page by page; the text of each page must end with it word for word."""
    pages, offset = [], 1
    while True:
        result = await client.call_tool("get_archived_output", {"handle": handle, "offset": offset, "max_tokens": 8000})
        page = result.structured_content
        assert page, text_of(result)
        assert text_of(result).endswith(f"\n\n{page['text']}")
        pages.append(page["text"])
        if not page.get("next_offset"):
            return "".join(pages)
        offset = page["next_offset"]
