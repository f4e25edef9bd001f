"""OAuth token introspection (RFC 7662): the authorization server says whether an opaque access token is valid."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote_plus

import anyio
import httpx2
from mcp.server.auth.provider import AccessToken

from contextstash.mcp.http.oauth_issuer import (
    LEEWAY_SECONDS,
    Failures,
    IssuerError,
    OAuthOptions,
    OddReplyError,
    access_token,
    issuer_client,
    read_metadata,
    read_reply,
    seconds_in,
)
from contextstash.service.bounded_cache import BoundedCache
from contextstash.web.access_tokens import digest
from contextstash.web.request_limits import Buckets, ConcurrencyLimit

logger = logging.getLogger(__name__)

TRUSTED_SECONDS = 30.0
"""How long a token counts as valid after the issuer said so: a revoked one is refused after this time at the latest.
The calls of one turn of an agent then ask once; a shorter time asks the issuer more often."""

REFUSED_SECONDS = 5.0
"""How long a token counts as not valid after the issuer said so. A token that becomes valid works after this time."""

METADATA_SECONDS = 3_600.0
"""Seconds after which the issuer's metadata are read again. If its address changes, tokens fail until then."""

MAX_TOKENS = 4_096
"""Tokens that are remembered, valid and refused ones each, some 500 bytes a token."""

MAX_ASKED = 16
"""Concurrent requests to the issuer for tokens that were not valid before, and as many for others. More requests
wait."""

MAX_WAITING = 200
"""Requests that wait for the issuer, for each of the two kinds; more are refused. Each counts among the 1,000 requests
that the server runs, and the issuer may take FETCH_SECONDS to fail."""

STRANGERS_A_SECOND = 100.0
"""Requests a second to the issuer for tokens that were not valid before; more are refused. Invented tokens must not
flood the issuer; after a restart all clients of a team are unknown."""

LOGGED_A_SECOND = 1.0
"""Lines of the log about failures, a second. Further ones in the same second are not written."""

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]{1,4096}=*")
"""The characters of a bearer token (RFC 6750). A longer token is refused."""


@dataclass(frozen=True, slots=True)
class IssuersClient:
    """The credentials by which the issuer recognizes this server."""

    name: str
    secret: str = field(repr=False)

    def authentication(self, methods: object) -> tuple[dict[str, str], httpx2.BasicAuth | None]:
        """The form fields or the header that authenticate this server, by the methods that the issuer accepts."""
        if isinstance(methods, list) and "client_secret_basic" not in methods and "client_secret_post" in methods:
            return {"client_id": self.name, "client_secret": self.secret}, None
        return {}, httpx2.BasicAuth(quote_plus(self.name), quote_plus(self.secret))  # by RFC 6749, as in a form


@dataclass(frozen=True, slots=True)
class _Answer:
    """The issuer's reply for a token, and when it came."""

    at: float
    token: AccessToken | None

    @property
    def holds(self) -> bool:
        """Whether it need not be asked again."""
        return time.monotonic() - self.at < (REFUSED_SECONDS if self.token is None else TRUSTED_SECONDS)


class _Questions:
    """The requests to the issuer for tokens of one kind: known ones, or unknown ones."""

    def __init__(self, issuer: str) -> None:
        self.places = anyio.Semaphore(MAX_ASKED)
        self.failures = Failures(issuer)
        self.waiting = ConcurrencyLimit(MAX_WAITING)


class IntrospectionVerifier:
    """The SDK's TokenVerifier for opaque tokens: asks the issuer, and remembers its replies for seconds."""

    def __init__(self, options: OAuthOptions, client: IssuersClient) -> None:
        self._options = options
        self._client = client
        self._http: httpx2.AsyncClient | None = None
        self._metadata: tuple[float, Mapping[str, Any]] | None = None
        self._valid: BoundedCache[bytes, _Answer] = BoundedCache(MAX_TOKENS)
        self._refused: BoundedCache[bytes, _Answer] = BoundedCache(MAX_TOKENS)
        self._asking: dict[bytes, anyio.Event] = {}
        # Made-up tokens cannot hold up those that were valid a moment ago, nor have the issuer fail for them.
        self._before, self._strangers = _Questions(options.issuer), _Questions(options.issuer)
        self._new = Buckets(STRANGERS_A_SECOND)
        self._log = Buckets(LOGGED_A_SECOND)

    async def verify_token(self, token: str) -> AccessToken | None:
        """The token as the SDK describes it, None if it is not valid. Raises IssuerError if the issuer cannot say."""
        if not _TOKEN.fullmatch(token):
            return None
        sha256 = digest(token)
        answer = self._known(sha256)
        if answer is None:
            questions = self._before if self._valid.get(sha256) else self._strangers
            with questions.waiting.take("all") as is_free:
                if not is_free:
                    raise IssuerError("Too many requests wait for the issuer.")
                answer = await self._waited_for(sha256, token)
        return None if answer.token is None else answer.token.model_copy(update={"token": token})

    async def _waited_for(self, sha256: bytes, token: str) -> _Answer:
        """The issuer's reply for a token. It is asked once for all requests that wait for the same token."""
        while (answer := self._known(sha256)) is None:
            if (asked := self._asking.get(sha256)) is not None:
                await asked.wait()
                continue
            self._asking[sha256] = anyio.Event()
            try:
                return await self._learn(sha256, token)
            finally:
                self._asking.pop(sha256).set()
        return answer

    async def close(self) -> None:
        """Close the connections to the issuer."""
        if self._http is not None:
            await self._http.aclose()
            self._http = None

    def _known(self, sha256: bytes) -> _Answer | None:
        """The remembered reply; None if there is none or it is too old."""
        for answers in (self._valid, self._refused):
            answer = answers.get(sha256)
            if answer is not None and answer.holds:
                return answer
        return None

    async def _learn(self, sha256: bytes, token: str) -> _Answer:
        """Ask the issuer about a token, and remember the answer. Raises IssuerError."""
        was_valid = self._valid.get(sha256) is not None
        questions = self._before if was_valid else self._strangers
        questions.failures.check()
        if not was_valid and self._new.take("all"):
            raise IssuerError("Too many unknown tokens are presented at the moment.")
        async with questions.places:
            questions.failures.check()  # it may have failed while this one waited
            try:
                claims = await self._asked(token)
            except IssuerError as error:
                # An odd reply may be due to this token, which may be invented: a filter in front of the issuer may
                # respond with a page. Other tokens must not wait for that.
                if not isinstance(error, OddReplyError):
                    questions.failures.note()
                raise self._noted(error) from None
        found = self._judged(token, claims)
        if found is None:
            self._valid.pop(sha256, None)
            return self._refused.set(sha256, _Answer(time.monotonic(), None))
        return self._valid.set(sha256, _Answer(time.monotonic(), found.model_copy(update={"token": ""})))

    def _judged(self, token: str, claims: Any) -> AccessToken | None:
        """The token, if the issuer's reply makes it valid here. Raises IssuerError if the reply cannot be
        understood."""
        try:
            found, reason = _accepted(token, claims, self._options)
        except (LookupError, TypeError, ValueError, OverflowError) as error:
            raise self._noted(IssuerError(f"what it says of a token makes no sense: {type(error).__name__}")) from None
        if reason:
            logger.info("a token of %s was refused: %s", self._options.issuer, reason)
        return found

    def _noted(self, error: IssuerError) -> IssuerError:
        """Log the error, at a limited rate, and return the one for the client."""
        if not self._log.take("all"):
            logger.warning("tokens cannot be verified: %s cannot be asked (%s)", self._options.issuer, error)
        return IssuerError(f"{self._options.issuer} cannot be asked about tokens.")

    async def _asked(self, token: str) -> Any:
        """The issuer's reply for a token. Raises IssuerError."""
        if self._http is None:
            self._http = issuer_client()
        metadata = await self._read_metadata(self._http)
        fields, header = self._client.authentication(metadata.get("introspection_endpoint_auth_methods_supported"))
        status, claims = await read_reply(
            self._http,
            "POST",
            metadata["introspection_endpoint"],
            data={"token": token, "token_type_hint": "access_token", **fields},
            auth=header or httpx2.USE_CLIENT_DEFAULT,
        )
        if status == 401:
            raise IssuerError("it refuses this server's client id or secret")
        if status != 200:
            raise OddReplyError(f"it responded with status {status}")
        return claims

    async def _read_metadata(self, client: httpx2.AsyncClient) -> Mapping[str, Any]:
        now = time.monotonic()
        if self._metadata is None or now - self._metadata[0] >= METADATA_SECONDS:
            self._metadata = now, await read_metadata(client, self._options.issuer, "introspection_endpoint")
        return self._metadata[1]


def _accepted(token: str, claims: Mapping[str, Any], options: OAuthOptions) -> tuple[AccessToken | None, str]:
    """The token, if it is active and issued for this server, else why not, if it is active. A reply without
    `active` is the issuer's error, not the token's: raises KeyError or TypeError."""
    if not isinstance(claims["active"], bool):
        raise TypeError("active")
    if not claims["active"]:
        return None, ""
    if not _is_access_token(claims):
        return None, "it is not a bearer token"
    if not _is_for(claims.get("aud"), options.audiences):
        return None, f"it was not issued for {options.audience} (aud)"
    expires, begins = seconds_in(claims, "exp"), seconds_in(claims, "nbf")
    if not _is_now(expires, begins):
        return None, "it expired, or is not valid yet (exp, nbf)"
    if claims.get("iss", options.issuer) != options.issuer:
        return None, "another issuer issued it (iss)"
    found = access_token(token, claims, options)
    return found, "" if found else f"it names no owner ({options.owner_claim}), or is bound to a key (cnf)"


def _is_now(expires: float | None, begins: float | None) -> bool:
    now = time.time()
    return (expires is None or expires >= now - LEEWAY_SECONDS) and (begins is None or begins <= now + LEEWAY_SECONDS)


def _is_access_token(claims: Mapping[str, Any]) -> bool:
    """Whether this is a bearer token: introspection also knows refresh tokens, and tokens bound to a key."""
    return str(claims.get("token_type", "Bearer")).lower() in ("bearer", "access_token")


def _is_for(audience: object, own: list[str]) -> bool:
    """Whether a token was issued for this server: one that another server got from a user must not work here."""
    named = [audience] if isinstance(audience, str) else audience if isinstance(audience, list) else []
    return any(each in own for each in named)
