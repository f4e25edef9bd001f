"""Scopes of a token (read, write, admin), and which tools they allow, by the tools' annotations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from shlex import quote
from typing import Any

from mcp import MCPError
from mcp.server import ServerRequestContext
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.context import CallNext, HandlerResult
from mcp.types import INVALID_REQUEST, CallToolResult, TextContent, ToolAnnotations

from contextstash.mcp.surface.tool import StashTool
from contextstash.web.access_tokens import DEFAULT_SCOPES, SCOPES

WITHOUT_SCOPE = frozenset(
    {
        "initialize",
        "ping",
        "server/discover",
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "logging/setLevel",
    }
)
"""Requests that show nothing of a session: any valid token will do. All other requests but calls of tools read."""


def needed_scope(annotations: ToolAnnotations | None) -> str:
    """The scope that a tool needs: what destroys needs `admin`, what reads needs `read`, all else `write`. So a new
    tool cannot be forgotten."""
    if annotations is None or annotations.destructive_hint:
        return "admin"
    return "read" if annotations.read_only_hint else "write"


def _made_by(scope: str, owner: str | None) -> str:
    """The command that makes a token of this scope, for the same sessions and for the usual calls too."""
    scopes = "".join(f" --scope {each}" for each in SCOPES) if scope not in DEFAULT_SCOPES else ""
    return f"contextstash token create NAME --owner {quote(owner or 'OWNER')}{scopes}"


class ScopeChecks:
    """Middleware of a server over HTTP. Refuses what the request's token does not allow."""

    def __init__(self, tools: Iterable[StashTool]) -> None:
        self._needed: Mapping[str, str] = {tool.name: needed_scope(tool.annotations) for tool in tools}

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        if ctx.request_id is None or ctx.method in WITHOUT_SCOPE:
            return await call_next(ctx)
        name = (ctx.params or {}).get("name") if ctx.method == "tools/call" else None
        needed = self._needed.get(name, "read") if isinstance(name, str) else "read"
        token = get_access_token()
        if token is not None and needed in token.scopes:
            return await call_next(ctx)
        held = ", ".join(token.scopes) if token is not None and token.scopes else "none"
        text = (
            f"{name or ctx.method} needs the scope {needed}; this token has: {held}."
            f" Use another token: {_made_by(needed, token.subject if token else None)}"
        )
        if name is None:
            raise MCPError(INVALID_REQUEST, text)
        return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)
