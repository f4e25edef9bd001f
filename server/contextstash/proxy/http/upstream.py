"""The connection to the model API: requests as they are, responses as they come."""

from __future__ import annotations

from collections.abc import AsyncIterator
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING

from contextstash.proxy.headers import RawHeaders, passed_on

if TYPE_CHECKING:
    import httpx2

IDLE_SECONDS = 30.0
"""How long an idle connection is kept. Providers close theirs after a minute or more; a request on a connection that is
just being closed would fail."""


class Upstream:
    """One model API. It has no time-outs, follows no redirects, and keeps no cookies: all that is the client's."""

    def __init__(self, url: str) -> None:
        """`url` has been checked by `check_upstream`."""
        import httpx2

        self._httpx = httpx2
        self._base = httpx2.URL(url)
        self._path = self._base.raw_path.rstrip(b"/")
        self._client = httpx2.AsyncClient(
            timeout=None,
            follow_redirects=False,
            limits=httpx2.Limits(max_connections=None, keepalive_expiry=IDLE_SECONDS),
            cookies=CookieJar(policy=DefaultCookiePolicy(allowed_domains=[])),
        )

    async def send(
        self, method: str, target: bytes, headers: RawHeaders, body: bytes | AsyncIterator[bytes] | None
    ) -> httpx2.Response:
        """Send a request with this target, byte for byte, and return its response as soon as the headers are there.
        Raises httpx2.TransportError if there is no response."""
        sent = passed_on(headers, leave_out=(b"host", b"expect"))
        if body is None or isinstance(body, bytes):
            sent = [pair for pair in sent if pair[0].lower() != b"content-length"]
        if isinstance(body, bytes):
            sent.append((b"content-length", str(len(body)).encode()))
        request = self._httpx.Request(
            method, self._base, headers=sent, content=body, extensions={"target": self._path + target}
        )
        return await self._client.send(request, stream=True)

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()
