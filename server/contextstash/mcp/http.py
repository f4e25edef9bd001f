"""Serving many clients over streamable HTTP: each presents a token, and works with its owner's sessions alone.

What every service needs on a network (TLS, limits of rates and connections) is left to a reverse proxy.
"""

from __future__ import annotations

import logging
from contextlib import nullcontext
from typing import Any

import anyio
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.routes import create_protected_resource_routes
from mcp.server.auth.settings import AuthSettings
from mcp.server.transport_security import RequestBodyLimitMiddleware, TransportSecuritySettings
from starlette.middleware import Middleware
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from contextstash.base.process import configure_logs
from contextstash.mcp.answers import with_whole_characters
from contextstash.mcp.server import ToolSet, build_server
from contextstash.mcp.tokens import (
    IssuedTokens,
    OwnerStashes,
    StoredTokens,
    check_issuer,
    check_scope,
)
from contextstash.stash_opener import StashOpener
from contextstash.web import public_host, serve
from contextstash_storage.errors import ContextstashError

logger = logging.getLogger(__name__)

MAX_BODY_BYTES = 64 * 1024 * 1024
"""Bytes of one request: a batch of messages with images in it can be tens of megabytes."""

CHECKED_HERE = TransportSecuritySettings(enable_dns_rebinding_protection=False)
"""The SDK's own check of Host and Origin is off: `HostChecks` does it before anything is read, for any forwarded port
of this machine."""

DRAIN_SECONDS = 20
"""How long running requests may continue after SIGTERM: within the 30 s after which Kubernetes kills a process, by
default."""

MAX_RUNNING = 1_000
"""Requests and streams at a time; further ones are refused with 503 by uvicorn."""

SETTINGS = {
    "timeout_keep_alive": 75,
    "timeout_graceful_shutdown": DRAIN_SECONDS,
    "limit_concurrency": MAX_RUNNING,
    "server_header": False,
}
"""uvicorn's. A proxy keeps an idle connection for 60 s (nginx's default for upstreams): one that this server closed
before that would fail the request which the proxy is just sending."""

PATH, HEALTH = "/mcp", "/healthz"

OFFERED_SCOPES = ["read", "write"]
"""The scopes that clients request from an issuer: they read them in the metadata, and a token without scopes allows
nothing. Not `admin`, which few users may have: issuers refuse a request with a scope too many. The SDK's own metadata
would have the scopes without which it refuses every request, which are none."""


def serve_http(
    opener: StashOpener,
    tools: ToolSet,
    host: str,
    port: int,
    *,
    public_url: str | None = None,
    oauth_issuer: str | None = None,
) -> None:
    """Serve many clients at `http://host:port/mcp`, and under `public_url` by a proxy in front; returns after SIGTERM
    or SIGINT, when the running requests have ended, with the store closed. `oauth_issuer` is an authorization server
    whose JWTs, issued for `public_url`, are accepted too; their `sub` names the owner.

    Raises BadInputError if these cannot be used, or if the host is not this machine and no proxy is in front."""
    configure_logs()
    name = None if public_url is None else public_host(public_url)
    if oauth_issuer is not None:
        check_issuer(oauth_issuer)

    def announce(address: str) -> str:
        named = "" if opener.database is None else f" --db {opener.database}"
        return (
            f"contextstash serves {address}{PATH} to clients that send a token: contextstash token create NAME{named}"
        )

    app = _endpoint(OwnerStashes(opener), tools, public_url, oauth_issuer, followed=opener.follow is not None)
    serve(lambda: nullcontext(app), host, port, announce, settings=SETTINGS, public=name, unchecked=(HEALTH,))


def _endpoint(stashes: OwnerStashes, tools: ToolSet, public: str | None, issuer: str | None, *, followed: bool) -> Any:
    """The SDK's application, with a health check, and a body limit behind its authentication: nothing of a request
    without a valid token is read. With an issuer it has the metadata (RFC 9728) by which clients find that; the
    verifier checks for whom a token was issued."""
    auth = {"issuer_url": issuer or "http://127.0.0.1", "resource_server_url": public if issuer else None}
    settings = AuthSettings.model_validate({**auth, "validate_token_resource": False})
    issued = IssuedTokens(issuer, public) if issuer and public else None
    app = build_server(
        stashes,
        tools,
        followed=followed,
        middleware=[check_scope],
        auth=settings,
        token_verifier=StoredTokens(stashes, issued),
    ).streamable_http_app(
        streamable_http_path=PATH,
        stateless_http=True,
        max_request_body_size=MAX_BODY_BYTES,
        transport_security=CHECKED_HERE,
    )
    look_ups = Middleware(ExceptionMiddleware, handlers={ContextstashError: _unavailable})
    app.user_middleware = [look_ups, *app.user_middleware, Middleware(WholeTexts)]
    if settings.resource_server_url is not None:
        app.router.routes[:0] = create_protected_resource_routes(
            settings.resource_server_url, [settings.issuer_url], scopes_supported=OFFERED_SCOPES
        )
    app.router.routes.append(Route(HEALTH, _healthy))
    return app


async def _healthy(_: Request) -> Response:
    """Whether the process responds; its database may be slow, which another process would not change."""
    return PlainTextResponse("ok\n")


class WholeTexts:
    """ASGI middleware behind the authentication: in a body with half of a surrogate pair, which the SDK does not accept
    in each of its protocols, the half becomes U+FFFD."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._limited = RequestBodyLimitMiddleware(self._repaired, MAX_BODY_BYTES)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        app = self._app
        if scope["type"] == "http" and scope["method"] == "POST" and isinstance(scope.get("user"), AuthenticatedUser):
            app = self._limited
        await app(scope, receive, send)

    async def _repaired(self, scope: Any, receive: Any, send: Any) -> None:
        event = await receive()
        if event["type"] == "http.request" and b"\\ud" in event["body"].lower():
            event = {**event, "body": await anyio.to_thread.run_sync(with_whole_characters, event["body"])}
        events = [event]

        async def replay() -> Any:
            return events.pop() if events else await receive()

        await self._app(scope, replay, send)


def _unavailable(_: Request, __: Exception) -> Response:
    """What a client gets whose token cannot be looked up. The log says why."""
    return PlainTextResponse("The token cannot be looked up at the moment. Try again.", 503, {"retry-after": "1"})
