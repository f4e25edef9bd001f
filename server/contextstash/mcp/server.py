"""The MCP server: the operations as its tools, with the picture of a context; resources, prompts and completions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing, asynccontextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, Literal

from mcp.server import MCPServer
from mcp.server.apps import Apps
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult, ToolAnnotations
from mcp.types import Tool as ListedTool

from contextstash import __version__
from contextstash.display import static
from contextstash.mcp.answers import answer_of, sendable, told
from contextstash.mcp.lazy_stash import LazyStash, OpenStash
from contextstash.mcp.resources import add_completions, add_prompts, add_resources
from contextstash.operations import OPERATIONS, Operation
from contextstash.safety.sanitize import did_you_mean
from contextstash.stash_opener import CALL
from contextstash_storage.errors import BadInputError

ToolSet = Literal["agent", "all"]


DESCRIPTION = "Manages an agent's context window: what leaves the model's window never leaves the session."

READING = """\
- A placeholder with a handle (out_...) stands for a tool output that is kept in full: get_archived_output reads it, \
by pattern or by lines. Do not run the tool again for it.
- search_history finds earlier messages and outputs, also from before a compaction; get_summary returns the summary."""

INSTRUCTIONS = f"""\
contextstash keeps your session's whole history and helps you stay within your context window.
- Before long work, and after long outputs, call estimate_context. At level prune call prune_tool_outputs; at level \
compact or above write a hand-off summary and pass it to compact_session.
{READING} Nothing is lost, and restore_outputs undoes a prune or a compaction."""

FOLLOWED_INSTRUCTIONS = f"""\
contextstash keeps your session's whole history. Your client sends its own history to you, so only the client can \
shrink your window: no tool here does, unless results say that the client runs behind the contextstash proxy.
- Before long work call estimate_context. At level compact or above write a hand-off summary, pass it to \
compact_session, and ask the user to compact in the client; the summary is handed to the new window.
{READING}"""


def build_server(
    open_stash: OpenStash | LazyStash,
    tools: ToolSet = "agent",
    *,
    followed: bool = False,
    **more: Any,
) -> ToolServer:
    """A server with the tools for models (`agent`), or also with those for programs (`all`).

    `open_stash` is called at the first use of the stash, not at the start; the stash is closed when the
    server stops. `followed`: a client that sends its own history is followed, so that the tools say that they change
    our view alone. `more` are the SDK's own options, such as a server's over HTTP.
    """
    stash = open_stash if isinstance(open_stash, LazyStash) else LazyStash(open_stash)
    app = Apps()
    description = "A picture of how full a session's context is."
    app.add_html_resource(
        URI, page(), name="context-status", title="Context status", description=description, prefers_border=True
    )
    offered = [each for each in OPERATIONS.values() if tools == "all" or each.for_models]
    options: dict[str, Any] = {
        "title": "contextstash",
        "description": DESCRIPTION,
        "instructions": FOLLOWED_INSTRUCTIONS if followed else INSTRUCTIONS,
        "version": __version__,
        "lifespan": lambda _: aclosing(stash),
        "log_level": "WARNING",
        "extensions": [app],
        **more,
    }
    server = ToolServer(stash, offered, followed=followed, **options)
    add_resources(server, stash)
    add_prompts(server, stash)
    add_completions(server, stash)
    return server


SCHEMAS = Path(__file__).with_name("schemas.json")

REPORT_SECONDS = 2.0
"""Seconds between two progress notifications, for a person who waits."""


def checked(operation: Operation, given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call with their types. Raises BadInputError, which says what is wrong."""
    try:
        sent = sendable(given)
    except ValueError:
        said = "The arguments hold NaN or an infinity, which are not JSON. Send a number or null."
        raise BadInputError(said) from None
    properties = _schemas()[operation.name]["input_schema"]["properties"]
    return operation.checked(
        {name: _parsed(value, properties.get(name, {}).get("type")) for name, value in sent.items()}
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
    """The SDK's server with operations as its tools."""

    def __init__(self, stash: LazyStash, operations: Iterable[Operation], *, followed: bool, **options: Any) -> None:
        super().__init__("contextstash", **options)
        self._stash = stash
        self._operations = {operation.name: operation for operation in operations}
        self._followed = followed

    async def list_tools(self) -> list[ListedTool]:
        """The tools as clients list them, with four hints on what each changes."""
        return [
            ListedTool(
                name=name,
                title=name.replace("_", " ").capitalize(),
                description=(self._followed and operation.followed) or operation.description,
                **_schemas()[name],
                annotations=ToolAnnotations(
                    read_only_hint=operation.read_only,
                    destructive_hint=operation.destructive,
                    idempotent_hint=operation.idempotent,
                    open_world_hint=False,
                ),
                _meta={"ui": {"resourceUri": URI}} if name == "context_status" else None,
            )
            for name, operation in self._operations.items()
        ]

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[None, Any] | None = None
    ) -> CallToolResult:
        """Carry out a call. Raises ToolError, which says what to do next, for every failure."""
        if (operation := self._operations.get(name)) is None:
            raise ToolError(f"There is no tool '{name}'. {did_you_mean(name, self._operations)}")
        if context is not None:
            CALL.set(context.request_context.meta)
        try:
            given = checked(operation, arguments)
            stash = await self._stash.get()
            async with _reported(context, operation.slow):
                return answer_of(await operation.run(stash, **given))
        except Exception as error:
            raise ToolError(told(name, error)) from None


@asynccontextmanager
async def _reported(context: Context[None, Any] | None, what: str | None) -> AsyncIterator[None]:
    """Report progress at once and then every few seconds, without a total: how long a model takes is unknown."""
    if context is None or what is None:
        yield
        return

    async def report() -> None:
        for number in count():
            await context.report_progress(number * REPORT_SECONDS, message=what)
            await asyncio.sleep(REPORT_SECONDS)

    reporting = asyncio.create_task(report())
    try:
        yield
    finally:
        reporting.cancel()
        await asyncio.gather(reporting, return_exceptions=True)


URI = "ui://contextstash/context-status.html"

LOOK, CHART = "/* look.css */", "/* chart.js */"
"""The places in the page for the style and the chart that it shares with the browser pages."""


def page() -> str:
    """The page: one document with its style and script, without external resources: clients show it in a sandbox."""
    text = Path(__file__).with_name("context_status.html").read_text(encoding="utf-8")
    return text.replace(LOOK, static("look.css")).replace(CHART, static("chart.js"))
