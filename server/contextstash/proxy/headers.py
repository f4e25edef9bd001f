"""Headers of requests and responses: all are passed on but those that are about one connection."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from contextstash.web.host_names import LOOPBACK
from contextstash_storage.errors import BadInputError

RawHeaders = list[tuple[bytes, bytes]]

SECRET_VARIABLE = "_CONTEXTSTASH_PROXY_SECRET"
"""The environment variable with which `contextstash run` tells its proxy the path that its client uses."""

UPSTREAM_VARIABLE = "_CONTEXTSTASH_PROXY_UPSTREAM"
"""The same for the model API's address: that of a gateway can hold a secret."""

HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
"""Headers about one connection, which a proxy must not pass on (RFC 9110, section 7.6.1)."""


def check_upstream(url: str) -> str:
    """The address without a slash at its end. Raises BadInputError if requests, which hold credentials, would leave
    this machine unencrypted."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadInputError(f"--upstream takes an address such as https://api.anthropic.com, not '{url}'.")
    if parts.scheme == "http" and parts.hostname not in LOOPBACK:
        raise BadInputError("--upstream must be https, unless it is on this machine: requests hold credentials.")
    if parts.username or parts.query or parts.fragment:
        raise BadInputError("--upstream takes no user name, query or fragment.")
    return url.rstrip("/")


def is_web_socket(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a client asks to continue as a WebSocket, whose messages the proxy could not read."""
    return (header(headers, b"upgrade") or "").lower() == "websocket"


def passed_on(headers: Iterable[tuple[bytes, bytes]], *, leave_out: Iterable[bytes] = ()) -> RawHeaders:
    """The headers without those about the connection, in their order and spelling. A length that a transfer encoding
    overrides is left out too (RFC 9112, section 6.3): the next reader would take it for the body's."""
    listed = list(headers)
    dropped = HOP_BY_HOP | {name.lower() for name in leave_out}
    if header(listed, b"transfer-encoding") is not None:
        dropped = dropped | {b"content-length"}
    for name, value in listed:
        if name.lower() == b"connection":
            dropped = dropped | {part.strip().lower() for part in value.split(b",")}
    return [(name, value) for name, value in listed if name.lower() not in dropped]


def header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> str | None:
    """The first value of a header; None if it is missing."""
    return next((value.decode("latin-1") for key, value in headers if key.lower() == name), None)
