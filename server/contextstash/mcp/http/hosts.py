"""Refuses requests under another name than the server's own, or from another site's page."""

from __future__ import annotations

from typing import Any

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse

from contextstash.web.hosts import OwnHosts


class HostChecks:
    """ASGI middleware: the Host header, and the Origin that browsers send, must name this server exactly."""

    def __init__(self, app: Any, hosts: OwnHosts) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and (refused := self._refused(Headers(scope=scope))) is not None:
            await refused(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _refused(self, headers: Headers) -> PlainTextResponse | None:
        names = headers.getlist("host")
        if len(names) != 1 or not self._hosts.has_host(names[0]):
            return PlainTextResponse("This server is not reached under this name (the Host header).", 421)
        if not all(self._hosts.has_origin(origin) for origin in headers.getlist("origin")):
            return PlainTextResponse("This request comes from another site's page (the Origin header).", 403)
        return None
