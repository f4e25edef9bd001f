"""Identifies a client's conversation and its side calls from its requests to a model API."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from contextstash.clients.client import Requests, own_clients
from contextstash.safety.sanitize import MARKER, OF_SESSION
from contextstash.session.ids import is_archive_id


@cache
def _known() -> Mapping[str, Requests]:
    """The clients whose requests are known."""
    return {each.name: each.requests for each in own_clients() if each.requests}


_SAFE = re.compile(r"[^\w.:-]")

MAX_ID = 120
"""Characters. Ids of sessions have at most 200, and the proxy adds a suffix for side conversations."""


@dataclass(frozen=True, slots=True)
class ClientSession:
    """The client's own id of a conversation, and that of the conversation that started it."""

    session_id: str
    parent: str | None = None


def client_session(headers: Iterable[tuple[bytes, bytes]]) -> ClientSession | None:
    """The conversation that the client names in its headers; None if the request has no id."""
    found = dict(headers)
    ids = (found.get(name) for each in _known().values() for name in each.session_headers)
    session_id = _safe(next(filter(None, ids), b"").decode("latin-1"))
    if session_id is None:
        return None
    parents = (found.get(each.parent_header, b"") for each in _known().values())
    parent = _safe(next(filter(None, parents), b"").decode("latin-1"))
    return ClientSession(session_id, parent if parent != session_id else None)


def _safe(name: str) -> str | None:
    """The name as the id of a session. One that had to be changed ends with its hash, so that two names never stand for
    one session, and none for the session of outputs that belong to no conversation."""
    safe = _SAFE.sub("_", name)[:MAX_ID]
    if not name or (safe == name and not is_archive_id(name)):
        return name or None
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{safe[: MAX_ID - 9]}-{digest}"


def agent_of(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The name of the client's agent, as its transcripts are recorded; `proxy` for one that is not known."""
    sent = dict(headers).get(b"user-agent", b"").lower()
    return next((name for name, each in _known().items() if any(own in sent for own in each.user_agents)), "proxy")


def is_compaction(last_message: Mapping[str, Any]) -> bool:
    """Whether the last message of a request asks the model for the client's own summary of the conversation, or OpenAI
    for its own compaction (Codex, seen in 0.169)."""
    phrases = [phrase for each in _known().values() for phrase in each.asks_for_summary]
    return last_message.get("type") == "compaction_trigger" or _holds(last_message, phrases)


def continues_summary(first_message: Mapping[str, Any]) -> bool:
    """Whether a conversation begins with the client's own summary of what was before, or with a hand-off in its place:
    our plugin answers the client's compaction with one."""
    if any(text.startswith(f"{MARKER}: {OF_SESSION}") for text in _texts_of(first_message)):
        return True
    return _holds(first_message, [phrase for each in _known().values() for phrase in each.continues])


def _holds(message: Mapping[str, Any], phrases: Sequence[str]) -> bool:
    return any(phrase in text for text in _texts_of(message) for phrase in phrases)


def _texts_of(message: Mapping[str, Any]) -> list[str]:
    """The texts of a message, in small letters."""
    content = message.get("content")
    blocks = [{"text": content}] if isinstance(content, str) else content
    texts = (block.get("text") for block in (blocks if isinstance(blocks, list) else ()) if isinstance(block, dict))
    return [text.lower() for text in texts if isinstance(text, str)]


_CONNECTING = re.compile(r"MCP servers are still connecting.{0,2000}?\bcontextstash\b", re.DOTALL)


def announces(message: Mapping[str, Any], tool: str) -> bool:
    """Whether a message says that a search for tools finds this one. Claude Code (2.1) lists the tools of MCP
    servers, and the servers that are still connecting, in reminders of the user's messages instead of in `tools`; for
    newer models these are messages of the role `system`.
    Results of tools do not count: a placeholder of contextstash names the tool too."""
    content = message.get("content")
    if message.get("role") not in ("user", "system") or not isinstance(content, str | list):
        return False
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    texts = (block.get("text") for block in blocks if isinstance(block, dict) and block.get("type") == "text")
    return any(isinstance(text, str) and (tool in text or _is_connecting(text)) for text in texts)


def _is_connecting(text: str) -> bool:
    return "contextstash" in text and _CONNECTING.search(text) is not None
