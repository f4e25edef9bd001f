"""Observes each request of a server over HTTP: a line of the log with `-v`, and figures for Prometheus if they are
kept. Names, times and outcomes; never what was passed or returned."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from mcp import MCPError
from mcp.server import ServerRequestContext
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.context import CallNext, HandlerResult
from mcp.types import CallToolResult

logger = logging.getLogger(__name__)

METHODS = frozenset(
    {
        "initialize", "ping", "server/discover", "tools/list", "tools/call", "resources/list",
        "resources/templates/list", "resources/read", "prompts/list", "prompts/get", "completion/complete",
        "subscriptions/listen",
    }
)  # fmt: skip
"""The methods that figures name. Any other method is `other`: a client could invent any number of names."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One request: `tool` is empty unless it is a call; `outcome` is `ok`, `error` (the client is told) or `failed`."""

    method: str
    tool: str
    outcome: str
    seconds: float


Observe = Callable[[Observation], None]


class CallObserver:
    """Middleware of a server over HTTP."""

    def __init__(self, tools: Iterable[str], observe: Observe | None = None) -> None:
        self._tools = frozenset(tools)
        self._observe = observe

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        if ctx.request_id is None:
            return await call_next(ctx)
        began, outcome = time.monotonic(), "failed"
        try:
            result = await call_next(ctx)
            outcome = "error" if _is_error(result) else "ok"
            return result
        except MCPError:
            outcome = "error"
            raise
        finally:
            self._note(ctx, outcome, time.monotonic() - began)

    def _note(self, ctx: ServerRequestContext[Any, Any], outcome: str, seconds: float) -> None:
        method = ctx.method if ctx.method in METHODS else "other"
        tool = self._tool((ctx.params or {}).get("name")) if method == "tools/call" else ""
        if self._observe is not None:
            self._observe(Observation(method, tool, outcome, seconds))
        if logger.isEnabledFor(logging.INFO):
            token = get_access_token()
            fields = {
                "method": method,
                **({"tool": tool} if tool else {}),
                "outcome": outcome,
                "milliseconds": round(1_000 * seconds, 1),
                "owner": token.subject if token else None,
                "token": token.client_id if token else None,
            }
            text = " ".join(f"{name}={value}" for name, value in fields.items())
            logger.info("request %s", text, extra={"fields": fields})

    def _tool(self, name: object) -> str:
        return name if isinstance(name, str) and name in self._tools else "other"


def _is_error(result: HandlerResult) -> bool:
    return bool(
        result.get("isError") if isinstance(result, dict) else isinstance(result, CallToolResult) and result.is_error
    )
