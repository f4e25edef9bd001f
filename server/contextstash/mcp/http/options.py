"""The options of a server over HTTP."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from contextstash.web.request_limits import DEFAULT_RATE_LIMIT


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """How HTTP is served: at `http://host:port/path`, and under `public_url` by a proxy in front, or with
    `tls_certificate` and `tls_key` by the server itself. `stateful`: a client
    of the older protocol gets a session of the protocol, which this process keeps. `rate_limit` is in requests a second
    for each token, 0 for none. `oauth_issuer` is an authorization server whose tokens, issued for `public_url`, are
    accepted too; their claim `oauth_owner_claim` names the owner. With `oauth_client_id` and `oauth_client_secret` the
    issuer is asked about tokens that are not in the form of a JWT."""

    host: str = "127.0.0.1"
    port: int = 8787
    path: str = "/mcp"
    public_url: str | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    stateful: bool = False
    rate_limit: float = DEFAULT_RATE_LIMIT
    oauth_issuer: str | None = None
    oauth_owner_claim: str = "sub"
    oauth_client_id: str | None = None
    oauth_client_secret: str | None = field(default=None, repr=False)
