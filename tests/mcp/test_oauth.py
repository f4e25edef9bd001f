"""Tokens of an authorization server: the right ones give access to their owner's sessions, and no others."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from contextstash.mcp.tokens import IssuedTokens, check_issuer
from contextstash_storage.errors import BadInputError
from tests.support.provider import Asked, Sent, served
from tests.support.servers import answer, error, http_client, http_server, new_token, record

ALGORITHM = "ES256"


class Issuer:
    """The server's address and its key: metadata, public keys, and tokens."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._key = ec.generate_private_key(ec.SECP256R1())

    @property
    def public_pem(self) -> bytes:
        return self._key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def keys(self) -> dict[str, Any]:
        """Its public keys, as clients read them."""
        described = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(self._key.public_key()))
        return {"keys": [{**described, "kid": "first", "use": "sig", "alg": ALGORITHM}]}

    def answer(self, asked: Asked) -> Sent:
        """The answer to a request."""
        pages = {
            "/.well-known/oauth-authorization-server": {"issuer": self.url, "jwks_uri": f"{self.url}/keys"},
            "/keys": self.keys(),
        }
        found = pages.get(asked.target)
        return Sent(404, {}) if found is None else Sent(200, found)

    def token(self, subject: str | None, audience: str, scope: str | None, **claims: Any) -> str:
        """A signed token that is valid for a minute, with these claims too; one that is None is left out."""
        usual = {"iss": self.url, "aud": audience, "client_id": "editor", "exp": time.time() + 60}
        issued = {**usual, "sub": subject, "scope": scope, **claims}
        given = {name: value for name, value in issued.items() if value is not None}
        return jwt.encode(given, self._key, ALGORITHM, headers={"kid": "first"})


@contextmanager
def authorization_server() -> Iterator[Issuer]:
    """An authorization server for the block."""
    issuer = Issuer("")
    with served(issuer.answer) as issuer.url:
        yield issuer


pytestmark = pytest.mark.processes

PUBLIC = "https://stash.example/mcp"


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with authorization_server() as running:
        yield running


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("oauth") / "s.db"


@pytest.fixture(scope="module")
def address(issuer: Issuer, database: Path) -> Iterator[str]:
    with http_server(database, public_url=PUBLIC, oauth_issuer=issuer.url) as served:
        yield served


def test_a_client_without_a_token_is_told_where_to_get_one(address: str, issuer: Issuer) -> None:
    refused = httpx2.post(address, json={})
    assert refused.status_code == 401
    where = "/.well-known/oauth-protected-resource/mcp"
    assert f'resource_metadata="https://stash.example{where}"' in refused.headers["www-authenticate"]
    metadata = httpx2.get(address.removesuffix("/mcp") + where).json()
    assert metadata["resource"] == PUBLIC
    assert metadata["authorization_servers"] == [issuer.url]
    assert metadata["scopes_supported"] == ["read", "write"]


async def test_an_issued_token_gives_access_to_its_owners_sessions_within_its_scopes(
    address: str, issuer: Issuer, database: Path
) -> None:
    async with http_client(address, new_token(database, "alice")) as client:
        await record(client, "made-with-a-stored-token")
    # Clocks differ: one that ended a moment ago still counts.
    async with http_client(address, issuer.token("alice", PUBLIC, "openid read", exp=time.time() - 5)) as client:
        [line] = (await answer(client, "list_sessions"))["sessions"]
        assert line["session_id"] == "made-with-a-stored-token"
        text = await error(client, "prune_tool_outputs", session_id="made-with-a-stored-token")
        assert "needs the scope write; this token has: read" in text
    async with http_client(address, issuer.token("bob", PUBLIC, "read write")) as client:
        assert (await answer(client, "list_sessions"))["sessions"] == []


def forged(issuer: Issuer) -> dict[str, str]:
    """Tokens that must not be accepted, by what is wrong with them."""
    claims = {"iss": issuer.url, "aud": PUBLIC, "sub": "alice", "scope": "read", "exp": time.time() + 60}
    return {
        "for another server": issuer.token("alice", "https://other.example/mcp", "read"),
        "for no server": issuer.token("alice", PUBLIC, "read", aud=None),
        "of another issuer": issuer.token("alice", PUBLIC, "read", iss="https://login.evil.example"),
        "without end": issuer.token("alice", PUBLIC, "read", exp=math.inf),
        "with an odd end": issuer.token("alice", PUBLIC, "read", exp=[1]),
        "expired": issuer.token("alice", PUBLIC, "read", exp=time.time() - 120),
        "not valid yet": issuer.token("alice", PUBLIC, "read", nbf=time.time() + 600),
        "without an owner": issuer.token(None, PUBLIC, "read"),
        "of this machine's user": issuer.token("local", PUBLIC, "read"),
        "with a reserved owner": issuer.token("\x1fdeleted", PUBLIC, "read"),
        "bound to a key of its client": issuer.token("alice", PUBLIC, "read", cnf={"jkt": "0ZcOCORZNYy"}),
        "by another key": Issuer(issuer.url).token("alice", PUBLIC, "read"),
        "not signed": jwt.encode(claims, "", "none", headers={"kid": "first"}),
        "signed with the public key": _signed_with_what_everybody_knows(claims, issuer.public_pem),
        "no token": "eyJ.eyJ.x",
    }


def _signed_with_what_everybody_knows(claims: dict[str, object], key: bytes) -> str:
    """The classical confusion of algorithms; PyJWT refuses to make it with a key in this form, hence by its parts."""

    def part(value: bytes) -> str:
        return base64.urlsafe_b64encode(value).rstrip(b"=").decode()

    head = part(json.dumps({"alg": "HS256", "typ": "JWT", "kid": "first"}).encode())
    body = f"{head}.{part(json.dumps(claims).encode())}"
    return f"{body}.{part(hmac.new(key, body.encode(), hashlib.sha256).digest())}"


async def test_a_token_that_is_wrong_in_any_part_is_refused(address: str, issuer: Issuer) -> None:
    verifier = IssuedTokens(issuer.url, PUBLIC)
    assert await verifier.verify_token(issuer.token("alice", PUBLIC, "read")) is not None
    for what, token in forged(issuer).items():
        assert await verifier.verify_token(token) is None, what
        assert httpx2.post(address, json={}, headers={"authorization": f"Bearer {token}"}).status_code == 401, what


async def test_scopes_can_be_a_list(issuer: Issuer) -> None:
    found = await IssuedTokens(issuer.url, PUBLIC).verify_token(
        issuer.token("alice", PUBLIC, None, scp=["admin", "other", "read"])
    )
    assert found is not None
    assert (found.subject, found.client_id, found.scopes) == ("alice", "editor", ["read", "admin"])


async def test_an_issuer_that_does_not_respond_is_an_error_for_later(database: Path) -> None:
    with authorization_server() as gone:
        url, token = gone.url, gone.token("alice", PUBLIC, "read")
    with http_server(database, public_url=PUBLIC, oauth_issuer=url) as served:
        reply = httpx2.post(served, json={}, headers={"authorization": f"Bearer {token}"})
        assert (reply.status_code, reply.headers["retry-after"]) == (503, "1")
        assert url not in reply.text


@pytest.mark.parametrize("url", ["http://login.example", "login.example", "https://", "http://127.0.0.1.evil.com"])
def test_an_issuer_whose_keys_could_be_forged_on_the_way_is_refused(url: str) -> None:
    with pytest.raises(BadInputError, match="issuer"):
        check_issuer(url)
