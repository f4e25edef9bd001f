"""Continues the trace of an HTTP request's `traceparent` header (W3C Trace Context) in the spans of its MCP messages.

The SDK's spans continue what stands in a message's `_meta` (SEP-414), and otherwise the trace that is current where
the message came in: here that of the header, which proxies and clients' HTTP libraries write.
"""

from __future__ import annotations

from typing import Any

from opentelemetry import context, propagate, trace
from starlette.datastructures import Headers

FIELDS = ("traceparent", "tracestate", "baggage")


class TraceHeaders:
    """ASGI middleware. A trace that is current already, by OpenTelemetry's own instrumentation of ASGI, stays."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = Headers(scope=scope) if scope["type"] == "http" else Headers()
        if "traceparent" not in headers or trace.get_current_span().get_span_context().is_valid:
            await self._app(scope, receive, send)
            return
        token = context.attach(propagate.extract({name: headers[name] for name in FIELDS if name in headers}))
        try:
            await self._app(scope, receive, send)
        finally:
            context.detach(token)
