"""Checks that the SDK does not make: list cursors, unknown prompts, supported protocol versions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mcp import MCPError
from mcp.server import ServerRequestContext
from mcp.server.context import CallNext, HandlerResult
from mcp.types import INVALID_PARAMS
from mcp.types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from contextstash.mcp.surface.error_texts import unknown_name

LISTS = frozenset({"tools/list", "prompts/list", "resources/list", "resources/templates/list"})

Prompts = Mapping[str, Iterable[str]]
"""Argument names by prompt."""


class ProtocolChecks:
    """Middleware. Returns "invalid params" for requests that the SDK would accept or report as an internal
    error. Adds the protocol versions with a handshake to `server/discover`, where the SDK lists only newer ones."""

    def __init__(self, prompts: Prompts) -> None:
        self._prompts = prompts

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        params = ctx.params or {}
        if ctx.method in LISTS and params.get("cursor") is not None:
            raise MCPError(INVALID_PARAMS, "Invalid cursor: this list has one page. Ask without a cursor.")
        if ctx.method == "prompts/get":
            self._check_prompt(params)
        result = await call_next(ctx)
        if ctx.method == "server/discover" and isinstance(result, dict):
            versions = [*MODERN_PROTOCOL_VERSIONS, *reversed(HANDSHAKE_PROTOCOL_VERSIONS)]
            return {**result, "supportedVersions": versions}
        return result

    def _check_prompt(self, params: Mapping[str, Any]) -> None:
        name = params.get("name")
        if not isinstance(name, str):
            return
        if name not in self._prompts:
            raise MCPError(INVALID_PARAMS, unknown_name("prompt", name, self._prompts))
        known = self._prompts[name]
        for argument in params.get("arguments") or {}:
            if argument not in known:
                raise MCPError(INVALID_PARAMS, unknown_name(f"argument of prompt {name} called", argument, known))
