"""The names under which a server is reached: a request under another name, or from another site's page, is refused.

A name that merely resolves to this machine could belong to a site that attacks by DNS rebinding. Names are compared
exactly: a check for a beginning would accept `localhost:3000.evil.com`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

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
        """Whether an Origin header names this server."""
        scheme, _, host = origin.partition("://")
        if scheme.lower() in ("http", "https") and _OF_THIS_MACHINE.fullmatch(host):
            return True
        return self.origin is not None and origin.lower() in (self.origin, f"{self.origin}:443")


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
