"""Who may use the proxy's port: programs of this machine that know its secret path, and no page of another site."""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from hmac import compare_digest
from typing import Any
from urllib.parse import urlsplit

from contextstash.proxy.headers import header
from contextstash.web.host_names import LOOPBACK, OwnHosts


def is_foreign_host(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a request names another host than this machine: a page whose name resolves to this machine, which a
    browser takes for the same site, sends its own name."""
    return not OwnHosts().has_host(header(headers, b"host") or "")


def behind_secret(scope: MutableMapping[str, Any], secret: str) -> MutableMapping[str, Any] | None:
    """The ASGI scope without the secret at the beginning of its path; None if the path does not begin with it."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    first, _, rest = raw[1:].partition(b"/")
    if not compare_digest(first, secret.encode()):
        return None
    return {**scope, "raw_path": b"/" + rest, "path": scope["path"][len(secret) + 1 :] or "/"}


def is_foreign_page(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a browser sends a request for a page that is not from this machine. Such a page could have the user's
    local model work for it, and put conversations of its own among the recorded ones. Programs send no Origin, and a
    browser sends none with what a page merely embeds, such as an image: then it says by Sec-Fetch-Site whose page that
    is, and no page has this port's address."""
    origins = [value.decode("latin-1") for name, value in headers if name.lower() == b"origin"]
    if not origins:
        return (header(headers, b"sec-fetch-site") or "none") not in ("none", "same-origin")
    return len(origins) > 1 or _is_foreign(origins[0])


def _is_foreign(origin: str) -> bool:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return True
    return origin == "null" or (parts.scheme in ("http", "https") and parts.hostname not in LOOPBACK)
