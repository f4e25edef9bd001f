"""Serving many clients over streamable HTTP: each presents a token, and works with its owner's sessions alone."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcp.server.auth.provider import TokenVerifier
from mcp.server.auth.routes import create_protected_resource_routes
from mcp.server.auth.settings import AuthSettings
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import AnyHttpUrl
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from contextstash.mcp.http.limits_and_health import HEALTH, READINESS, Gate, HostChecks, TokenLimits
from contextstash.mcp.http.oauth_issuer import IssuerError
from contextstash.mcp.http.options import HttpOptions
from contextstash.mcp.http.owners import OwnerStashes
from contextstash.mcp.http.request_bodies import StrictBodies
from contextstash.mcp.http.token_verifier import EitherTokens, EndedWithToken, StoredTokens
from contextstash.mcp.http.trace_headers import TraceHeaders
from contextstash.mcp.lazy_stash import OpenStash
from contextstash.mcp.server import HttpAccess, ToolSet, build_server
from contextstash.mcp.wire.json_rpc import MAX_MESSAGE_BYTES
from contextstash.process.plain_logs import announcement
from contextstash.web.access_tokens import TokenVerification, local_token
from contextstash.web.host_names import OwnHosts, hosts_behind
from contextstash.web.loopback import TimedConnection, serve
from contextstash_storage.errors import BadInputError, ContextstashError, StoreError

if TYPE_CHECKING:
    from contextstash.mcp.call_observer import Observe
    from contextstash.mcp.http.metrics import Metrics
    from contextstash.service.stash import Stash

MAX_BODY_BYTES = 6 * MAX_MESSAGE_BYTES
"""Largest body for the SDK, in bytes: a placeholder for a lone surrogate is six times as long as its escape."""

CHECKED_HERE = TransportSecuritySettings(enable_dns_rebinding_protection=False)
"""The SDK's own check of Host and Origin is off: `HostChecks` does it before anything is read, and exactly."""

SETTINGS = {"http": TimedConnection, "timeout_keep_alive": 75, "server_header": False}
"""uvicorn's. A proxy keeps an idle connection for 60 s (nginx's default for upstreams): one that this server closed
before that would fail the request which the proxy is just sending."""

PAGES = "/ui"
"""The path of the browser pages."""

OFFERED_SCOPES = ["read", "write"]
"""The scopes that clients request from an issuer: they read them in the metadata, and a token without scopes allows
nothing. Not `admin`, which few users may have: issuers refuse a request with a scope too many. The SDK's own metadata
would have the scopes without which it refuses every request, which are none."""

MakePages = Callable[
    [Callable[[str], Awaitable["Stash"]], Callable[[], Awaitable[TokenVerification]], str, OwnHosts], tuple[Any, str]
]
"""Makes the browser pages of the owners' stashes, with their tokens, for a path: their application, and the query of
the address that opens them."""


def run_http(
    open_stash: OpenStash,
    tools: ToolSet,
    options: HttpOptions,
    *,
    token_file: Path,
    pages: MakePages | None = None,
    followed: bool = False,
    json_logs: bool = False,
) -> None:
    """Serve until a signal ends it, with the browser pages next to the endpoint if there are any; `followed` as in
    build_server. The token of this machine's clients is kept in `token_file`. Raises BadInputError if the server cannot
    listen on the address."""
    path, hosts = options.path, _checked(options)
    stashes = OwnerStashes(open_stash)
    made = pages(stashes.of, stashes.verification, PAGES, hosts) if pages else None
    gates: list[Gate] = []

    async def app() -> Any:
        metrics = _metrics(lambda: sum(gate.running for gate in gates))
        observe = metrics.observe if metrics else None
        endpoint = _endpoint(stashes, tools, options, followed=followed, observe=observe)
        if metrics is not None:
            endpoint.router.routes.append(metrics.route)
        if made is not None:
            endpoint.mount(PAGES, made[0])
        # The stash stays open between requests.
        endpoint.router.lifespan_context = _around(endpoint.router.lifespan_context, stashes.in_use)
        said = await _where_tokens_are(stashes, token_file)
        sys.stderr.write(announcement(said, as_json=json_logs) + "\n")
        sys.stderr.flush()
        gates.append(Gate(HostChecks(Answered(endpoint), hosts), lambda: _asked(stashes), path))
        return gates[0]

    def announce(address: str) -> str:
        opening = made[1] if made else None
        return announcement(address_line(address, path, opening, logged=json_logs), as_json=json_logs)

    async def drain() -> None:
        for gate in gates:
            await gate.drain()

    settings, public = {**SETTINGS, **_tls(options)}, options.public_url is not None
    serve(app, options.host, options.port, announce, settings=settings, drain=drain, public=public)


def _tls(options: HttpOptions) -> dict[str, Any]:
    """uvicorn's settings for https. Raises BadInputError if the certificate or its key cannot be used."""
    if options.tls_certificate is None or options.tls_key is None:
        return {}
    import ssl

    try:
        # The empty password keeps OpenSSL from asking for one in the terminal of a service.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(options.tls_certificate, options.tls_key, lambda: b"")
    except OSError as error:
        raise BadInputError(
            f"The certificate {options.tls_certificate} and the key {options.tls_key} cannot be used together"
            f" ({error.strerror or error}). Both must be PEM files, the key without a password."
        ) from error
    return {"ssl_certfile": options.tls_certificate, "ssl_keyfile": options.tls_key}


def address_line(address: str, path: str, opening: str | None, *, logged: bool) -> str:
    """The address of the server, and of its pages if there is the query that opens them. A log (`logged`) is collected
    and read by others, who must not get access by it: it has the address without the query, where a token must be
    entered."""
    watch = "" if opening is None else f"; to watch it: {address}{PAGES}/{'' if logged else opening}"
    return f"contextstash serves {address}{path}{watch}"


def _checked(options: HttpOptions) -> OwnHosts:
    """The server's names. Raises BadInputError if the options cannot be used."""
    if not options.path.startswith("/") or options.path in (PAGES, HEALTH, READINESS):
        raise BadInputError(
            f"The path of the endpoint must begin with '/' and must not be {PAGES} or a health check's."
        )
    if options.oauth_issuer is not None:
        from contextstash.mcp.http.oauth_issuer import check_issuer

        check_issuer(options.oauth_issuer)
    return hosts_behind(options.public_url)


def _metrics(running: Callable[[], int]) -> Metrics | None:
    """The figures for Prometheus; None if its client library is not installed."""
    try:
        from contextstash.mcp.http.metrics import Metrics
    except ModuleNotFoundError:
        return None
    return Metrics(running)


def _endpoint(
    stashes: OwnerStashes, tools: ToolSet, options: HttpOptions, *, followed: bool, observe: Observe | None
) -> Any:
    """The SDK's application, with our checks behind its authentication: nothing of a request without a valid token is
    read."""
    auth, verifier = _authentication(stashes, options)
    endpoint = build_server(
        stashes, tools, followed=followed, access=HttpAccess(auth, verifier, observe)
    ).streamable_http_app(
        streamable_http_path=options.path,
        stateless_http=not options.stateful,
        max_request_body_size=MAX_BODY_BYTES,
        transport_security=CHECKED_HERE,
    )
    endpoint.user_middleware.append(Middleware(EndedWithToken, verifier=verifier))
    endpoint.user_middleware.append(Middleware(TokenLimits, rate=options.rate_limit))
    endpoint.user_middleware.append(Middleware(StrictBodies, path=options.path))
    endpoint.user_middleware.append(Middleware(TraceHeaders))
    if auth.resource_server_url is not None:
        endpoint.router.routes[:0] = create_protected_resource_routes(
            auth.resource_server_url, [auth.issuer_url], scopes_supported=OFFERED_SCOPES
        )
    endpoint.add_exception_handler(Exception, _failed)
    if isinstance(verifier, EitherTokens):
        endpoint.router.lifespan_context = _around(endpoint.router.lifespan_context, verifier.in_use)
    return endpoint


def _authentication(stashes: OwnerStashes, options: HttpOptions) -> tuple[AuthSettings, TokenVerifier]:
    """The SDK's settings and what verifies tokens. With an issuer, the SDK serves the metadata (RFC 9728) by which
    clients find it; the verifier checks for whom a token was issued."""
    stored = StoredTokens(stashes)
    if options.oauth_issuer is None or options.public_url is None:
        return AuthSettings(issuer_url=AnyHttpUrl("http://127.0.0.1"), resource_server_url=None), stored
    from contextstash.mcp.http.oauth import OAuthTokens
    from contextstash.mcp.http.oauth_issuer import OAuthOptions

    issued = OAuthOptions(options.oauth_issuer, options.public_url, options.oauth_owner_claim)
    opaque = None
    if options.oauth_client_id is not None and options.oauth_client_secret is not None:
        from contextstash.mcp.http.introspection import IntrospectionVerifier, IssuersClient

        opaque = IntrospectionVerifier(issued, IssuersClient(options.oauth_client_id, options.oauth_client_secret))
    settings = AuthSettings.model_validate(
        {
            "issuer_url": options.oauth_issuer,
            "resource_server_url": options.public_url,
            "validate_token_resource": False,
        }
    )
    return settings, EitherTokens(stored, OAuthTokens(issued), opaque)


async def _failed(_: Request, error: Exception) -> Response:
    """The response to a request whose token could not be looked up, or which failed outside any tool."""
    if isinstance(error, ContextstashError):
        return PlainTextResponse("The token cannot be looked up at the moment. Try again.", 503, {"retry-after": "1"})
    return PlainTextResponse("Internal error.", 500)


class Answered:
    """ASGI middleware around the SDK's application. Starlette raises an error again after `_failed` has responded, and
    uvicorn logs it: while the issuer is down, any client could fill the log, which gives the reason already."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        with suppress(IssuerError):
            await self._app(scope, receive, send)


async def _asked(stashes: OwnerStashes) -> object:
    return await (await stashes.whole()).mark()


async def _where_tokens_are(stashes: OwnerStashes, file: Path) -> str:
    """The place of the token of this machine's clients, as a sentence. A missing token is made here."""
    try:
        kept = await local_token((await stashes.whole()).tokens, file)
    except (StoreError, OSError) as error:
        text = f"no token could be read or made ({error})"
    else:
        text = (
            f"the token for this machine's clients is in {file}" if kept else "tokens: contextstash token create NAME"
        )
    return f"contextstash: clients send 'Authorization: Bearer TOKEN'; {text}"


def _around(lifespan: Any, opened: Callable[[], AbstractAsyncContextManager[None]]) -> Any:
    """The application's lifespan within another one, which `opened` returns."""

    @asynccontextmanager
    async def both(app: Any) -> AsyncIterator[Any]:
        async with opened(), lifespan(app) as state:
            yield state

    return both
