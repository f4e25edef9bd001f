"""The MCP server: tools, resources, prompts and completions over one stash."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal

from mcp.server import MCPServer

from contextstash import __version__
from contextstash.mcp.lazy_stash import LazyStash, OpenStash
from contextstash.mcp.resources import add_completions, add_prompts, add_resources, check_prompt
from contextstash.mcp.status_app import status_app
from contextstash.mcp.tools import OperationTool, ToolServer
from contextstash.operations import OPERATIONS, Operation

ToolSet = Literal["retrieval", "agent", "all"]


DESCRIPTION = "Manages an agent's context window: what leaves the model's window never leaves the session."

INSTRUCTIONS = """\
contextstash keeps your session's whole history and helps you stay within your context window.
- Before long work, and after long outputs, call estimate_context. At level prune call \
prune_tool_outputs; at level compact or above write a hand-off summary and pass it to compact_session.
- A placeholder with a handle (out_...) stands for a tool output that is kept in full: \
get_archived_output reads it, by pattern or by lines. Do not run the tool again for it.
- search_history finds earlier messages and outputs, also from before a compaction; get_summary returns \
the summary. Nothing is lost, and restore_outputs undoes a prune or a compaction."""

FOLLOWED_INSTRUCTIONS = """\
contextstash keeps your session's whole history. Your client sends its own history to you, so only the client can \
shrink your window: no tool here does, unless results say that the client runs behind the contextstash proxy.
- Before long work call estimate_context. At level compact or above write a hand-off summary, pass it to \
compact_session, and ask the user to compact in the client; the summary is handed to the new window.
- A placeholder with a handle (out_...) stands for a tool output that is kept in full: get_archived_output reads it, \
by pattern or by lines. Do not run the tool again for it.
- search_history finds earlier messages and outputs, also from before a compaction; get_summary returns the summary."""


def build_server(
    open_stash: OpenStash | LazyStash,
    tools: ToolSet = "agent",
    version: str = __version__,
    *,
    on_stopped: Callable[[], None] | None = None,
    followed: bool = False,
    middleware: Sequence[Any] = (),
    **authentication: Any,
) -> MCPServer[None]:
    """A server with the tools for models (`agent`), also with those for programs (`all`), or only with the one that
    reads an archived output (`retrieval`).

    `open_stash` is called at the first use of the stash, not at the start; the stash is closed when the
    server stops, and then `on_stopped` is called. `followed`: a client that sends its own history is followed, so that
    the tools say that they change our view alone. A server over HTTP has `middleware` and the SDK's options of
    `authentication`.
    """
    stash = open_stash if isinstance(open_stash, LazyStash) else LazyStash(open_stash)

    @asynccontextmanager
    async def lifespan(_: MCPServer[None]) -> AsyncIterator[None]:
        try:
            async with stash.in_use():
                yield
        finally:
            if on_stopped:
                on_stopped()

    offered = [each for each in OPERATIONS.values() if _is_in(each, tools)]
    options: dict[str, Any] = {
        "title": "contextstash",
        "description": DESCRIPTION,
        "instructions": FOLLOWED_INSTRUCTIONS if followed else INSTRUCTIONS,
        "version": version,
        "lifespan": lifespan,
        "log_level": "WARNING",
        "middleware": [check_prompt, *middleware],
        "extensions": [] if tools == "retrieval" else [status_app()],
        **authentication,
    }
    server = ToolServer(stash, [OperationTool(each, followed=followed) for each in offered], **options)
    if tools != "retrieval":
        add_resources(server, stash)
        add_prompts(server, stash)
        add_completions(server, stash)
    return server


def _is_in(operation: Operation, tools: ToolSet) -> bool:
    if tools == "retrieval":
        return operation.name == "get_archived_output"
    return tools == "all" or operation.for_models
