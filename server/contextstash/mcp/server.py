"""The MCP server: tools, resources, prompts and completions over one stash."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from mcp.server import CacheHint, MCPServer
from mcp.server.caching import CacheableMethod

from contextstash import __version__
from contextstash.mcp.lazy_stash import LazyStash, OpenStash
from contextstash.mcp.scopes import ScopeChecks
from contextstash.mcp.surface import followed_descriptions
from contextstash.mcp.surface.agent_tools import agent_tools
from contextstash.mcp.surface.completions import add_completions
from contextstash.mcp.surface.program_tools import program_tools
from contextstash.mcp.surface.prompts import PROMPTS, add_prompts
from contextstash.mcp.surface.protocol_checks import ProtocolChecks
from contextstash.mcp.surface.resources import add_resources
from contextstash.mcp.surface.status_app import status_app, status_tool
from contextstash.mcp.surface.tool import StashTool

if TYPE_CHECKING:
    from mcp.server.auth.provider import TokenVerifier
    from mcp.server.auth.settings import AuthSettings

ToolSet = Literal["retrieval", "agent", "all"]


class HttpAccess(NamedTuple):
    """How the clients of a server over HTTP are admitted: each request needs a token that `verifier` accepts, whose
    scopes limit what it may do."""

    settings: AuthSettings
    verifier: TokenVerifier


DESCRIPTION = "Manages an agent's context window: what leaves the model's window never leaves the session."

INSTRUCTIONS = """\
contextstash keeps your session's whole history and helps you stay within your context window.
- Before long work, and after long outputs, call estimate_context. At level prune call \
prune_tool_outputs; at level compact or above write a hand-off summary and pass it to compact_session.
- A placeholder with a handle (out_...) stands for a tool output that is kept in full: \
get_archived_output reads it, by pattern or by lines. Do not run the tool again for it.
- search_history finds earlier messages and outputs, also from before a compaction; get_summary returns \
the summary. Nothing is lost, and restore_outputs undoes a prune or a compaction."""

_FIXED = CacheHint(ttl_ms=3_600_000, scope="public")
CACHE_HINTS: dict[CacheableMethod, CacheHint] = {
    "tools/list": _FIXED,
    "prompts/list": _FIXED,
    "resources/list": _FIXED,
    "resources/templates/list": _FIXED,
}
"""The lists depend on the program's version only, so a client may keep them. After an update a client may show the old
lists for an hour."""


def build_server(
    open_stash: OpenStash | LazyStash,
    tools: ToolSet = "agent",
    version: str = __version__,
    *,
    on_stopped: Callable[[], None] | None = None,
    followed: bool = False,
    access: HttpAccess | None = None,
) -> MCPServer[None]:
    """A server with the tools for models (`agent`), also with those for programs (`all`), or only with the one that
    reads an archived output (`retrieval`).

    `open_stash` is called at the first use of the stash, not at the start; the stash is closed when the
    server stops, and then `on_stopped` is called. `followed`: a client that sends its own history is followed, so that
    the tools say that they change our view alone. `access` is for a server over HTTP.
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

    offered = _offered(stash, tools)
    if followed:
        offered = followed_descriptions.described(offered)
    server: MCPServer[None] = MCPServer(
        "contextstash",
        title="contextstash",
        description=DESCRIPTION,
        instructions=followed_descriptions.INSTRUCTIONS if followed else INSTRUCTIONS,
        version=version,
        tools=list[Any](offered),
        lifespan=lifespan,
        log_level="WARNING",
        middleware=[ProtocolChecks(PROMPTS), *([ScopeChecks(offered)] if access else [])],
        auth=access.settings if access else None,
        token_verifier=access.verifier if access else None,
        extensions=[] if tools == "retrieval" else [status_app()],
        cache_hints=CACHE_HINTS,
    )
    if tools != "retrieval":
        add_resources(server, stash)
        add_prompts(server, stash)
        add_completions(server, stash)
    return server


def _offered(stash: LazyStash, tools: ToolSet) -> list[StashTool]:
    if tools == "retrieval":
        return [tool for tool in agent_tools(stash) if tool.name == "get_archived_output"]
    return [*agent_tools(stash), status_tool(stash), *(program_tools(stash) if tools == "all" else [])]
