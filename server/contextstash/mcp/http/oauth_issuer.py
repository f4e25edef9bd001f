"""An authorization server: its options, its metadata, and what of its claims about a token is accepted."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpx2
from mcp.server.auth.provider import AccessToken

from contextstash.web.access_tokens import SCOPES, valid_owner
from contextstash.web.host_names import LOOPBACK
from contextstash_storage.errors import BadInputError, ContextstashError
from contextstash_storage.records import LOCAL_OWNER

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


FAILED_SECONDS = 5.0
"""Seconds for which an issuer that did not respond is not asked again: requests would wait for it one after another."""

LEEWAY_SECONDS = 30
"""Seconds by which the clocks of two machines may differ; with a larger difference valid tokens are refused."""

MAX_PROGRAM = 200
"""Characters of the name of a client of the issuer: it is stored and logged, and can be as long as a response."""


@dataclass(frozen=True, slots=True)
class OAuthOptions:
    """Whose tokens are accepted. `audience` is this server's public address, for which they must be issued; the claim
    `owner_claim` names their owner."""

    issuer: str
    audience: str
    owner_claim: str = "sub"

    @property
    def audiences(self) -> list[str]:
        """The spellings of the audience."""
        return [self.audience, self.audience.removesuffix("/")]


class Failures:
    """Remembers that an issuer failed a moment ago."""

    def __init__(self, issuer: str) -> None:
        self._issuer = issuer
        self._failed_at = -math.inf

    def check(self) -> None:
        """Raise IssuerError if it failed a moment ago."""
        if time.monotonic() - self._failed_at < FAILED_SECONDS:
            raise IssuerError(f"{self._issuer} did not respond as it should a moment ago.")

    def note(self) -> None:
        """Remember a failure."""
        self._failed_at = time.monotonic()


def check_issuer(issuer: str) -> None:
    """Raise BadInputError if what is read from this address could be forged on the way."""
    if not is_trusted(issuer):
        raise BadInputError(f"The issuer must be like https://login.example, not '{issuer}'.")


def is_trusted(url: str) -> bool:
    """Whether requests to this address are encrypted, or stay on this machine."""
    parts = urlsplit(url)
    return bool(parts.scheme == "https" and parts.hostname) or (parts.scheme == "http" and parts.hostname in LOOPBACK)


async def read_metadata(client: httpx2.AsyncClient, issuer: str, address: str) -> dict[str, Any]:
    """The issuer's metadata that have this address: RFC 8414 puts the well-known part before the path, OpenID Connect
    behind it, and not every issuer has the same fields in both. Raises IssuerError if none have it, if they are another
    issuer's, or if its address cannot be trusted."""
    parts = urlsplit(issuer)
    path = parts.path.rstrip("/")
    wrong = "it has no metadata at its well-known addresses"
    for url in (
        f"{parts.scheme}://{parts.netloc}/.well-known/oauth-authorization-server{path}",
        f"{parts.scheme}://{parts.netloc}{path}/.well-known/openid-configuration",
    ):
        try:
            _, read = await read_reply(client, "GET", url)
        except OddReplyError as error:  # some sites have a page at every address
            wrong = str(error)
            continue
        if not isinstance(read, dict):
            continue
        if read.get("issuer") != issuer:
            named = str(read.get("issuer"))[:MAX_PROGRAM]
            raise IssuerError(f"its metadata name the issuer '{named}', which --oauth-issuer must be, to the letter")
        found = read.get(address)
        if isinstance(found, str) and is_trusted(found):
            return read
        wrong = f"its metadata have no {address} that can be trusted"
    raise IssuerError(wrong)


def access_token(token: str, claims: Mapping[str, Any], options: OAuthOptions) -> AccessToken | None:
    """A token whose claims hold, as the SDK describes it; None if they name no owner who may have sessions here. A
    token that is bound to a key of its client (`cnf`) is refused, because the client does not prove that it has the
    key."""
    owner = claims.get(options.owner_claim)
    if not isinstance(owner, str) or not valid_owner(owner) or owner == LOCAL_OWNER or "cnf" in claims:
        return None
    expires = seconds_in(claims, "exp")
    return AccessToken(
        token=token,
        client_id=str(claims.get("client_id") or claims.get("azp") or owner)[:MAX_PROGRAM],
        scopes=_scopes(claims),
        expires_at=None if expires is None else int(expires),
        subject=owner,
        claims={"iss": options.issuer},
    )


def seconds_in(claims: Mapping[str, Any], name: str) -> float | None:
    """The time that a claim states, in seconds; None if it is missing or null. Raises ValueError, TypeError or
    OverflowError if it is not a time."""
    value = claims.get(name)
    if value is None:
        return None
    seconds = float(value)
    if not math.isfinite(seconds):
        raise ValueError(name)
    return seconds


def _scopes(claims: Mapping[str, Any]) -> list[str]:
    """The scopes of contextstash that a token has: `scope` is a text in RFC 9068, some servers write `scp`, as a list
    too."""
    given = claims.get("scope") or claims.get("scp")
    words = given.split() if isinstance(given, str) else given if isinstance(given, list) else []
    return [scope for scope in SCOPES if scope in words]
