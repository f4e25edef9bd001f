"""The names under which a server is reached: a request under another name, or from another site's page, is refused.

A name that merely resolves to this machine could belong to a site that attacks by DNS rebinding. Names are compared
exactly: a check for a beginning would accept `localhost:3000.evil.com`.
"""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from contextstash_storage.errors import BadInputError

LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""This machine, as a host is written in an address that was parsed."""

_OF_THIS_MACHINE = re.compile(r"(?:127\.0\.0\.1|localhost|\[::1\])(?::[0-9]{1,5})?", re.IGNORECASE)
"""Any port, because a forwarded one differs from the port that the server listens on."""


_IMPLIED = (":443", ":80")
"""The ports of https, and of http if the proxy passes on what it was sent there."""


@dataclass(frozen=True, slots=True)
class OwnHosts:
    """The names of this machine, and that of the proxy in front of it: `public` is the proxy's host with its port, as
    browsers send it; `origin` is where its pages come from."""

    public: str | None = None
    origin: str | None = None

    def has_host(self, host: str) -> bool:
        """Whether a Host header names this server."""
        return bool(_OF_THIS_MACHINE.fullmatch(host)) or self.is_public(host)

    def is_public(self, host: str) -> bool:
        """Whether a Host header names the proxy. Some clients write the port of https or http too."""
        return self.public is not None and host.lower() in (self.public, *(self.public + port for port in _IMPLIED))

    def has_origin(self, origin: str) -> bool:
        """Whether an Origin header names this server, another page of this machine, or no page of the web: editors send
        origins such as `vscode-file://vscode-app`."""
        scheme, _, host = origin.partition("://")
        if scheme.lower() not in ("http", "https"):
            return origin != "null" and bool(host)
        if _OF_THIS_MACHINE.fullmatch(host):
            return True
        return self.origin is not None and origin.lower() in (self.origin, f"{self.origin}:443")


class HostChecks:
    """ASGI middleware in front of all that `web/loopback.py` serves: refuses requests under another name (421), and
    those that a browser sends for another site's page (403). The `unchecked` paths come by any name."""

    def __init__(self, app: ASGIApp, hosts: OwnHosts | None = None, unchecked: Container[str] = ()) -> None:
        self._app = app
        self._hosts = hosts or OwnHosts()
        self._unchecked = unchecked

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._app
        if scope["type"] == "http" and scope["path"] not in self._unchecked:
            headers = Headers(scope=scope)
            if not self._hosts.has_host(headers.get("host", "")):
                answer = PlainTextResponse("This server is not reached under this name (the Host header).", 421)
            elif not all(map(self._hosts.has_origin, headers.getlist("origin"))):
                answer = PlainTextResponse("This request comes from another site's page (the Origin header).", 403)
        await answer(scope, receive, send)


def hosts_behind(public_url: str | None) -> OwnHosts:
    """The names of a server that a proxy makes public under this address. Raises BadInputError if it is not one that
    browsers and clients can trust."""
    if public_url is None:
        return OwnHosts()
    parts = urlsplit(public_url)
    if parts.scheme != "https" or not parts.hostname or parts.query or parts.fragment or "@" in parts.netloc:
        raise BadInputError(
            f"The public address must be like https://stash.example/mcp, not '{public_url}': tokens must not cross a"
            " network unencrypted."
        )
    public = parts.netloc.lower().removesuffix(":443")
    return OwnHosts(public, f"https://{public}")
