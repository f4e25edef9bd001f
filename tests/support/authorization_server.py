"""A small authorization server on loopback: metadata, public keys, and tokens for whoever asks."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.support.provider import served

ALGORITHM = "ES256"


class Issuer:
    """The server's address and its key."""

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

    def token(self, subject: str | None, audience: str, scope: str | None, **claims: Any) -> str:
        """A signed token that is valid for a minute, with these claims too; one that is None is left out."""
        usual = {"iss": self.url, "aud": audience, "client_id": "editor", "exp": time.time() + 60}
        issued = {**usual, "sub": subject, "scope": scope, **claims}
        given = {name: value for name, value in issued.items() if value is not None}
        return jwt.encode(given, self._key, ALGORITHM, headers={"kid": "first"})


class _Handler(BaseHTTPRequestHandler):
    issuers: list[Issuer]

    def do_GET(self) -> None:
        [issuer] = self.issuers
        pages = {
            "/.well-known/oauth-authorization-server": {
                "issuer": issuer.url,
                "jwks_uri": f"{issuer.url}/keys",
                "token_endpoint": f"{issuer.url}/token",
            },
            "/keys": issuer.keys(),
        }
        self._send(pages.get(self.path))

    def do_POST(self) -> None:
        [issuer] = self.issuers
        form = parse_qs(self.rfile.read(int(self.headers["content-length"])).decode())
        given = {name: values[0] for name, values in form.items()}
        token = issuer.token(given["user"], given["resource"], given["scope"])
        self._send({"access_token": token, "token_type": "Bearer", "expires_in": 60})

    def _send(self, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(404 if value is None else 200)
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
