"""Figures for Prometheus at `/metrics`, if its client library is installed (the extra `metrics`)."""

from __future__ import annotations

from collections.abc import Callable

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from contextstash.mcp.call_observer import Observation

PATH = "/metrics"

BUCKETS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)
"""Upper limits in seconds: from a list of tools to a compaction by a model."""


class Metrics:
    """The requests of one server process, counted for Prometheus."""

    def __init__(self, running: Callable[[], int]) -> None:
        """`running` returns how many requests run now."""
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._requests = Histogram(
            "contextstash_request_seconds",
            "Requests by method, tool and outcome (ok, error, failed)",
            ["method", "tool", "outcome"],
            buckets=BUCKETS,
            registry=self._registry,
        )
        gauge = Gauge("contextstash_running_requests", "HTTP requests that run now", registry=self._registry)
        gauge.set_function(running)

    def observe(self, seen: Observation) -> None:
        """Count a request."""
        self._requests.labels(seen.method, seen.tool, seen.outcome).observe(seen.seconds)

    @property
    def route(self) -> Route:
        """The route of the figures. They show how much others use the server, so it needs the scope admin."""

        async def page(request: Request) -> Response:
            user = request.scope.get("user")
            if not isinstance(user, AuthenticatedUser):
                return PlainTextResponse(
                    "Send a token: Authorization: Bearer TOKEN.", 401, {"www-authenticate": "Bearer"}
                )
            if "admin" not in user.scopes:
                return PlainTextResponse("This needs the scope admin, which this token does not have.", 403)
            return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)

        return Route(PATH, page)
