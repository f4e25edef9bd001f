"""The operations as the tools of a server: their schemas, checked arguments, progress, results."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from mcp import MCPError
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult, ToolAnnotations
from mcp.types import Tool as ListedTool

from contextstash.base.near_names import unknown_name
from contextstash.mcp.answers import answer_of, sendable
from contextstash.mcp.errors import report_crash
from contextstash.mcp.lazy_stash import LazyStash
from contextstash.mcp.status_app import URI
from contextstash.operations import Operation
from contextstash.safety.sanitize import encodable
from contextstash_storage.errors import ContextstashError

SCHEMAS = Path(__file__).with_name("schemas.json")

REPORT_SECONDS = 2.0
"""Seconds between two progress notifications, for a person who waits."""


class OperationTool:
    """An operation as a tool. `followed`: for a client that sends its own history."""

    def __init__(self, operation: Operation, *, followed: bool) -> None:
        self.operation = operation
        self._followed = followed

    @cached_property
    def listed(self) -> ListedTool:
        """The tool as clients list it. Its four annotations are hints on what it changes."""
        operation = self.operation
        return ListedTool(
            name=operation.name,
            title=operation.title,
            description=(self._followed and operation.followed) or operation.description,
            **_schemas()[operation.name],
            annotations=ToolAnnotations(
                read_only_hint=operation.read_only,
                destructive_hint=operation.destructive,
                idempotent_hint=operation.idempotent,
                open_world_hint=False,
            ),
            _meta={"ui": {"resourceUri": URI}} if operation.name == "context_status" else None,
        )

    def checked(self, given: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a call with their types. Raises ToolError or BadInputError, which says what is wrong."""
        try:
            json.dumps(given, allow_nan=False)
        except ValueError:
            raise ToolError(
                "The arguments hold NaN or an infinity, which are not JSON. Send a number or null."
            ) from None
        properties = self.listed.input_schema["properties"]
        return self.operation.checked(
            {name: _parsed(value, properties.get(name, {}).get("type")) for name, value in given.items()}
        )


@cache
def _schemas() -> dict[str, Any]:
    """The schemas of each operation, from the file that `make docs` writes: to make them takes a tenth of the time that
    a client waits for the list."""
    found: dict[str, Any] = json.loads(SCHEMAS.read_bytes())
    return found


def _parsed(value: Any, kind: Any) -> Any:
    """Some clients send lists and objects as JSON text. Other texts are not parsed: a summary may be JSON."""
    if isinstance(value, str) and kind in ("array", "object"):
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError):
            return value
        return parsed if isinstance(parsed, list | dict) else value
    return value


class ToolServer(MCPServer[None]):
    """The SDK's server with our own tools."""

    def __init__(self, stash: LazyStash, tools: Iterable[OperationTool], **options: Any) -> None:
        super().__init__("contextstash", **options)
        self._stash = stash
        self._tools = {tool.operation.name: tool for tool in tools}

    async def list_tools(self) -> list[ListedTool]:
        """The tools as clients list them."""
        return [tool.listed for tool in self._tools.values()]

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[None, Any] | None = None
    ) -> CallToolResult:
        """Carry out a call. Raises ToolError, which says what to do next, for every failure."""
        if (tool := self._tools.get(name)) is None:
            raise ToolError(unknown_name("tool", name, self._tools))
        try:
            given = tool.checked(sendable(arguments))
            stash = await self._stash.get()
            async with _reported(context, tool.operation.slow):
                result = await tool.operation.run(stash, **given)
            return answer_of(result)
        except (MCPError, ToolError):
            raise
        except ContextstashError as error:
            raise ToolError(encodable(str(error))) from None
        except Exception as error:
            raise ToolError(report_crash(name, error)) from None


@asynccontextmanager
async def _reported(context: Context[None, Any] | None, what: str | None) -> AsyncIterator[None]:
    """Report progress at once and then every few seconds, without a total: how long a model takes is unknown."""
    if context is None or what is None:
        yield
        return
    await context.report_progress(0, message=what)
    reporting = asyncio.create_task(_report(context, what))
    try:
        yield
    finally:
        reporting.cancel()
        await asyncio.gather(reporting, return_exceptions=True)


async def _report(context: Context[None, Any], what: str) -> None:
    seconds = 0.0
    while True:
        await asyncio.sleep(REPORT_SECONDS)
        seconds += REPORT_SECONDS
        await context.report_progress(seconds, message=f"{what}, {seconds:.0f} s")
