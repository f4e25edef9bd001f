"""Who sends a request: keyed hashes of its credentials, in memory only, so that two users never share a session."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_HEADERS = (b"authorization", b"x-api-key", b"api-key", b"x-goog-api-key", b"chatgpt-account-id")
"""Headers that hold credentials, or name the account: of Anthropic, OpenAI, Azure, Google and Codex.
Cookies change during a session: they are the network's."""

_KEY = secrets.token_bytes(32)
"""Random for each process: the hashes mean nothing to anyone else, and are never stored."""

_CLAUDE_TOKEN = b"sk-ant-oat"
"""The beginning of an access token of Claude's sign-in. Claude Code gets a new one every few hours."""


@dataclass(frozen=True)
class Sender:
    """Keyed hashes of a request's credentials, and of the account that its body names if these are renewed during a
    session. The model API checks the credentials alone: anyone can name an account."""

    credentials: bytes
    account: bytes | None = None

    def may_be(self, other: Sender) -> bool:
        """Whether both name the same account, perhaps with a token that was renewed between."""
        return self.account is not None and self.account == other.account


def sender_of(headers: Iterable[tuple[bytes, bytes]], metadata: Any) -> Sender:
    """The hashes of a request's credentials."""
    found = {name.lower(): value for name, value in headers}
    tokens = {name: _token_of(found[name]) for name in _HEADERS if name in found}
    account = _account_of(metadata)
    named = {name: account if account and token.startswith(_CLAUDE_TOKEN) else token for name, token in tokens.items()}
    lasting = {name: _subject_of(token) or token for name, token in tokens.items()}
    return Sender(_hash(lasting), None if named == tokens else _hash(named))


def _hash(parts: Mapping[bytes, bytes]) -> bytes:
    return hmac.digest(_KEY, b"\0".join(parts.get(name, b"") for name in _HEADERS), hashlib.sha256)


def _token_of(value: bytes) -> bytes:
    return value[7:].strip() if value[:7].lower() == b"bearer " else value


def _account_of(metadata: Any) -> bytes | None:
    """The account in Claude Code's `metadata.user_id`: an object as text, or user_…_account_UUID_session_UUID."""
    user_id = metadata.get("user_id") if isinstance(metadata, dict) else None
    if not isinstance(user_id, str):
        return None
    if not user_id.startswith("{"):
        account, _, session = user_id.rpartition("_session_")
        return account.encode("utf-8", "surrogatepass") if session and "_account_" in account else None
    named = _json_object(user_id).get("account_uuid")
    return named.encode("utf-8", "surrogatepass") if isinstance(named, str) and named else None


def _subject_of(token: bytes) -> bytes | None:
    """Issuer and subject of a JSON Web Token (RFC 7519), which a renewed one repeats. The model API checks it; here it
    only tells senders apart."""
    parts = token.split(b".")
    if len(parts) != 3:
        return None
    try:
        text = base64.urlsafe_b64decode(parts[1] + b"=" * (-len(parts[1]) % 4))
    except (binascii.Error, ValueError):
        return None
    claims = _json_object(text)
    subject = claims.get("sub")
    return json.dumps([claims.get("iss"), subject]).encode() if isinstance(subject, str) and subject else None


def _json_object(text: str | bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
