"""Replies of an authorization server: JSON, of limited size, within limited time."""

from __future__ import annotations

import json
from typing import Any

import anyio
import httpx2

from contextstash_storage.errors import ContextstashError

FETCH_SECONDS = 10.0
"""Seconds that a whole response may take; a slower issuer counts as unavailable."""

MAX_BYTES = 1 << 20
"""Bytes of a response; a longer one is refused. Metadata, keys and replies for a token have some kilobytes."""


class IssuerError(ContextstashError):
    """The authorization server does not respond, or not as it should."""


class OddReplyError(IssuerError):
    """It responds to a request with something that makes no sense, such as a page; perhaps only to this one."""


def issuer_client() -> httpx2.AsyncClient:
    """A client for requests to an issuer. A proxy of the environment (HTTPS_PROXY) sees only encrypted ones: plain HTTP
    is for an issuer on this machine, and carries tokens and a secret."""
    return httpx2.AsyncClient(timeout=FETCH_SECONDS, mounts={"http://": None})


async def read_reply(client: httpx2.AsyncClient, method: str, url: str, **options: Any) -> tuple[int, Any]:
    """The status of a response, and its JSON if that is 200. Raises IssuerError, which says what is wrong without
    anything of the response."""
    try:
        with anyio.fail_after(FETCH_SECONDS):  # httpx2's own limit starts again with each byte
            status, body = await _received(client, method, url, options)
    except TimeoutError:
        raise IssuerError(f"it did not respond within {FETCH_SECONDS:.0f} s") from None
    except httpx2.TransportError as error:
        raise IssuerError(f"{type(error).__name__}: {error}") from None
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
        raise IssuerError(type(error).__name__) from None
    if status != 200:
        return status, None
    try:
        return status, json.loads(body)
    except (ValueError, RecursionError):
        raise OddReplyError("it did not respond with JSON") from None


async def _received(client: httpx2.AsyncClient, method: str, url: str, options: dict[str, Any]) -> tuple[int, bytes]:
    # Not compressed: a few kilobytes could become gigabytes.
    headers = {"accept": "application/json", "accept-encoding": "identity"}
    async with client.stream(method, url, headers=headers, **options) as reply:
        body = bytearray()
        async for part in reply.aiter_raw():
            body += part
            if len(body) > MAX_BYTES:
                raise OddReplyError(f"its response is larger than {MAX_BYTES:,} bytes")
        return reply.status_code, bytes(body)
