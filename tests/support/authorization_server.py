"""A small authorization server on loopback: metadata, public keys, tokens for whoever asks, and what it says of them
to a client that it knows."""

from __future__ import annotations

import json
import time
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, quote_plus

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.support.loopback_server import served

ALGORITHM = "ES256"

CLIENT, SECRET = "contextstash server", "a+b c%d"
"""By which a resource server proves itself; RFC 6749 has both encoded as in a form."""


class Issuer:
    """The server's address and its key."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.opaque: dict[str, Any] = {}
        self.statuses: dict[str, int] = {}
        self.slow: set[str] = set()
        self.asked: list[str] = []
        self.methods: list[str] | None = None
        self.names_itself = url
        self.has_only_openid_metadata = False
        self._key = ec.generate_private_key(ec.SECP256R1())

    @property
    def public_pem(self) -> bytes:
        return self._key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def keys(self) -> dict[str, Any]:
        """Its public keys, as clients read them."""
        described = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(self._key.public_key()))
        return {"keys": [{**described, "kid": "first", "use": "sig", "alg": ALGORITHM}]}

    def token(self, subject: str | None, audience: str, scope: str | None, **claims: Any) -> str:
        """A signed token that is valid for a minute, with these claims too; one that is None is left out."""
        usual = {"iss": self.url, "aud": audience, "client_id": "editor", "exp": time.time() + 60}
        issued = {**usual, "sub": subject, "scope": scope, **claims}
        given = {name: value for name, value in issued.items() if value is not None}
        return jwt.encode(given, self._key, ALGORITHM, headers={"kid": "first"})

    def opaque_token(self, subject: str | None, audience: str | None, scope: str | None, **claims: Any) -> str:
        """A token that says nothing itself; this server says these claims of it, without those that are None."""
        usual = {"active": True, "aud": audience, "sub": subject, "scope": scope, "client_id": "editor"}
        token = f"opaque-{len(self.opaque)}"
        self.opaque[token] = {name: value for name, value in {**usual, **claims}.items() if value is not None}
        return token

    def knows(self, authorization: str | None, form: Mapping[str, str]) -> bool:
        """Whether a question comes from the client that may ask, which proved itself by the method that was named."""
        given = f"{quote_plus(CLIENT)}:{quote_plus(SECRET)}".encode()
        if self.methods == ["client_secret_post"]:
            return (form.get("client_id"), form.get("client_secret")) == (CLIENT, SECRET)
        return authorization == f"Basic {b64encode(given).decode()}"


class _Handler(BaseHTTPRequestHandler):
    issuers: list[Issuer]

    def do_GET(self) -> None:
        [issuer] = self.issuers
        kind = "openid-configuration" if issuer.has_only_openid_metadata else "oauth-authorization-server"
        pages = {
            f"/.well-known/{kind}": {
                "issuer": issuer.names_itself,
                "jwks_uri": f"{issuer.url}/keys",
                "token_endpoint": f"{issuer.url}/token",
                "introspection_endpoint": f"{issuer.url}/introspect",
                **({"introspection_endpoint_auth_methods_supported": issuer.methods} if issuer.methods else {}),
            },
            "/keys": issuer.keys(),
        }
        page = "a page for every other address" if issuer.has_only_openid_metadata else None
        self._send(pages.get(self.path, page))

    def do_POST(self) -> None:
        [issuer] = self.issuers
        form = parse_qs(self.rfile.read(int(self.headers["content-length"])).decode())
        given = {name: values[0] for name, values in form.items()}
        if self.path == "/introspect":
            self._introspect(issuer, given)
            return
        token = issuer.token(given["user"], given["resource"], given["scope"])
        self._send({"access_token": token, "token_type": "Bearer", "expires_in": 60})

    def _introspect(self, issuer: Issuer, form: Mapping[str, str]) -> None:
        issuer.asked.append(form["token"])
        if not issuer.knows(self.headers["authorization"], form):
            self._send({"error": "invalid_client"}, 401)
            return
        if form["token"] in issuer.slow:
            self._send_slowly()
            return
        self._send(issuer.opaque.get(form["token"], {"active": False}), issuer.statuses.get(form["token"], 200))

    def _send_slowly(self) -> None:
        """Send a blank from time to time, until the client has had enough."""
        self.send_response(200)
        self.end_headers()
        with suppress(OSError):
            for _ in range(500):
                self.wfile.write(b" ")
                time.sleep(0.02)

    def _send(self, value: Any, status: int = 200) -> None:
        body = json.dumps(value).encode()
        self.send_response(404 if value is None else status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Write nothing."""


@contextmanager
def authorization_server() -> Iterator[Issuer]:
    """An authorization server for the block."""
    issuers: list[Issuer] = []
    with served(_Handler, issuers=issuers) as url:
        issuers.append(Issuer(url))
        yield issuers[0]
