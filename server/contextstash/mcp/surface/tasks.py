"""A long call as a task (SEP-2663), for clients that declare the extension: they ask for its result by polling.

A call that ends within PATIENCE_SECONDS is answered as always, also if it asks the client for something first. One that
takes longer goes on in the background, until its end or that of the server: tasks are kept in this process alone.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from mcp import MCPError
from mcp.server import ServerRequestContext
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.context import CallNext, HandlerResult
from mcp.server.extension import Extension, MethodBinding
from mcp.types import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CallToolRequestParams,
    RequestParams,
)
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel

from contextstash.mcp.lazy_stash import LazyStash

logger = logging.getLogger(__name__)

IDENTIFIER = "io.modelcontextprotocol/tasks"

LONG_CALLS = frozenset({"compact_session"})
"""Tools that wait for a model: it writes a summary in 5 to 60 seconds."""

PATIENCE_SECONDS = 2.0
"""Longer than a compaction without a model takes (docs/performance.md); a client waits so long before it is told."""

KEPT_SECONDS = 900
"""How long an ended task can be asked for: a client that polls has read it by then."""

POLL_MILLISECONDS = 1_000

MAX_TASKS = 100
"""Tasks of all owners that are kept; with more, a call is answered at its end."""


@dataclass
class _Task:
    """A call that goes on, and whose it is: the subject of a token, None without tokens."""

    call: asyncio.Future[HandlerResult]
    owner: str | None
    name: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    began: datetime = field(default_factory=lambda: datetime.now(UTC))
    ended: datetime | None = None
    expires: float = float("inf")

    def end(self) -> None:
        self.ended, self.expires = datetime.now(UTC), time.monotonic() + KEPT_SECONDS

    def state(self) -> dict[str, Any]:
        return {
            "taskId": self.name,
            "createdAt": self.began.isoformat(timespec="milliseconds"),
            "lastUpdatedAt": (self.ended or self.began).isoformat(timespec="milliseconds"),
            "ttlMs": None
            if self.ended is None
            else round(1_000 * ((self.ended - self.began).total_seconds() + KEPT_SECONDS)),
            "pollIntervalMs": POLL_MILLISECONDS,
            **self._outcome(),
        }

    def _outcome(self) -> dict[str, Any]:
        if not self.call.done():
            return {"status": "working"}
        if self.call.cancelled():
            return {"status": "cancelled"}
        error = self.call.exception()
        if isinstance(error, MCPError):
            return {"status": "failed", "error": error.error.model_dump(mode="json", exclude_none=True)}
        if error is not None:
            return {"status": "failed", "error": {"code": INTERNAL_ERROR, "message": "Internal error"}}
        return {"status": "completed", "result": _plain(self.call.result())}


def _plain(result: HandlerResult) -> dict[str, Any]:
    if isinstance(result, BaseModel):
        result = result.model_dump(mode="json", by_alias=True, exclude_none=True)
    return {"resultType": "complete", **(result or {})}


class TaskParams(RequestParams):
    task_id: str


class Tasks(Extension):
    """The extension on a server's stash, which stays open while a task runs."""

    identifier = IDENTIFIER

    def __init__(self, stash: LazyStash) -> None:
        self._stash = stash
        self._tasks: dict[str, _Task] = {}

    def methods(self) -> Sequence[MethodBinding]:
        handlers = {"tasks/get": self._get, "tasks/update": self._update, "tasks/cancel": self._cancel}
        versions = frozenset(MODERN_PROTOCOL_VERSIONS)
        return [MethodBinding(name, TaskParams, handler, versions) for name, handler in handlers.items()]

    async def intercept_tool_call(
        self, params: CallToolRequestParams, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        self._forget_old()
        if params.name not in LONG_CALLS or not _is_declared(ctx) or len(self._tasks) >= MAX_TASKS:
            return await call_next(ctx)
        call = asyncio.ensure_future(self._called(ctx, call_next))
        try:
            await asyncio.wait({call}, timeout=PATIENCE_SECONDS)
        except asyncio.CancelledError:
            call.cancel()
            raise
        if call.done():
            return call.result()
        task = _Task(call, _owner())
        self._tasks[task.name] = task
        call.add_done_callback(lambda _: self._ended(task))
        return {"resultType": "task", **task.state()}

    async def _called(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        async with self._stash.in_use():
            return await call_next(ctx)

    def _ended(self, task: _Task) -> None:
        task.end()
        if not task.call.cancelled() and (error := task.call.exception()) and not isinstance(error, MCPError):
            logger.error("A task failed", exc_info=error)

    def _forget_old(self) -> None:
        now = time.monotonic()
        self._tasks = {name: task for name, task in self._tasks.items() if task.expires > now}

    def _named(self, ctx: ServerRequestContext[Any, Any], params: TaskParams) -> _Task:
        if not _is_declared(ctx):
            needed: dict[str, Any] = {"requiredCapabilities": {"extensions": {IDENTIFIER: {}}}}
            raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, f"Declare the extension {IDENTIFIER}.", needed)
        header = ctx.request.headers.get("mcp-name") if ctx.request is not None else None
        if header not in (None, params.task_id):
            raise MCPError(HEADER_MISMATCH, "The header Mcp-Name names another task than the request.")
        self._forget_old()
        task = self._tasks.get(params.task_id)
        if task is None or task.owner != _owner():
            raise MCPError(
                INVALID_PARAMS, "Unknown task: it expired, or the server was started again. Make the call again."
            )
        return task

    async def _get(self, ctx: ServerRequestContext[Any, Any], params: TaskParams) -> HandlerResult:
        return self._named(ctx, params).state()

    async def _update(self, ctx: ServerRequestContext[Any, Any], params: TaskParams) -> HandlerResult:
        """A task asks for nothing: responses are ignored, as the specification wants it for unknown keys."""
        self._named(ctx, params)
        return {}

    async def _cancel(self, ctx: ServerRequestContext[Any, Any], params: TaskParams) -> HandlerResult:
        self._named(ctx, params).call.cancel()
        return {}


def _is_declared(ctx: ServerRequestContext[Any, Any]) -> bool:
    capabilities = ctx.session.client_capabilities
    declared = capabilities.extensions if capabilities else None
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS and IDENTIFIER in (declared or {})


def _owner() -> str | None:
    token = get_access_token()
    return token.subject if token else None
