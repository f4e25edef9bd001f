"""Message bodies as bytes of JSON, and what makes two of them the same."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from contextstash_storage.records import Native

_JSON = json.JSONDecoder()
"""Decodes what this program wrote: without looking for the encoding and for white space it takes 60 % of the time."""

CACHE_MARK = "cache_control"
"""The field that makes Anthropic's API write its prompt cache up to this block. Programs move it to the newest
message of each request, so it is not part of the message's identity."""


def fingerprint(body: Native, json_text: bytes | None = None) -> bytes:
    """What makes two messages the same: their JSON, key order included, cache marks of content blocks left out.
    `json_text` is `to_bytes(body)`, if the caller has it."""
    data = to_bytes(body) if json_text is None else json_text
    if CACHE_MARK.encode() in data:
        data = to_bytes(_without_cache_marks(body))
    return hashlib.sha256(data).digest()


def _without_cache_marks(value: Any) -> Any:
    """The body without the cache marks of its content blocks, those inside tool results included."""
    if isinstance(value, list):
        return [_without_cache_marks(child) for child in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _without_cache_marks(child) if key == "content" else child
        for key, child in value.items()
        if key != CACHE_MARK
    }


def to_bytes(value: object) -> bytes:
    """Compact JSON in UTF-8; lone surrogates, which UTF-8 can't hold, are escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def body_of(stored: bytes) -> Native:
    """The body of `to_bytes`."""
    body: Native = _JSON.raw_decode(stored.decode())[0]
    return body


def text_bytes(text: str) -> bytes:
    """Any text as bytes, lone surrogates included."""
    return text.encode("utf-8", "surrogatepass")
