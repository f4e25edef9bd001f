"""Who sends a request: a keyed hash of its credentials, in memory only, so that two users never share a session."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
from collections.abc import Iterable, Mapping
from typing import Any

_HEADERS = (b"authorization", b"x-api-key", b"api-key", b"x-goog-api-key", b"chatgpt-account-id")
"""Headers that hold credentials, or name the account: of Anthropic, OpenAI, Azure, Google and Codex.
Cookies change during a session: they are the network's."""

_KEY = secrets.token_bytes(32)
"""Random for each process: the hashes mean nothing to anyone else, and are never stored."""

_CLAUDE_TOKEN = b"sk-ant-oat"
"""The beginning of an access token of Claude's sign-in. Claude Code gets a new one every few hours."""


def sender_of(headers: Iterable[tuple[bytes, bytes]], metadata: Any) -> bytes:
    """The hash of a request's credentials. Of a token that is renewed during a session, its account is taken: that of
    the token itself, or the one that Claude Code names in the body's `metadata`."""
    found = {name.lower(): value for name, value in headers}
    parts = [_lasting(found[name], metadata) if name in found else b"" for name in _HEADERS]
    return hmac.digest(_KEY, b"\0".join(parts), hashlib.sha256)


def _lasting(value: bytes, metadata: Any) -> bytes:
    """What of a credential stays the same when it is renewed; a key is never renewed."""
    token = value[7:].strip() if value[:7].lower() == b"bearer " else value
    if token.startswith(_CLAUDE_TOKEN):
        return _account_of(metadata) or token
    return _subject_of(token) or token


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
