"""Identifies a client's conversation and its side calls from its requests to a model API."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from contextstash.session.access import is_archive_id

_SESSION_HEADERS = (
    b"x-claude-code-session-id",
    b"thread-id",
    b"thread_id",
    b"session-id",
    b"session_id",
    b"conversation_id",
)
"""Claude Code's header (seen in 2.1.197), and Codex's, whose sub-agents share `session-id` and have a `thread-id` each
(seen in 0.169). Older versions sent `session_id` and `conversation_id`."""

_PARENT_HEADER = b"x-codex-parent-thread-id"
"""The thread that started a sub-agent of Codex (seen in 0.169)."""

_IN_USER_ID = re.compile(r"session_([0-9a-fA-F-]{8,64})")
"""The end of Claude Code's `metadata.user_id`: user_…_account_…_session_UUID."""

_SAFE = re.compile(r"[^\w.:-]")

MAX_ID = 120
"""Characters. Ids of sessions have at most 200, and the proxy adds a suffix for side conversations."""

_COMPACTION = (
    "your task is to create a detailed summary of the conversation",
    "context checkpoint compaction",
    "you have been tasked with summarizing",
    "create a handoff summary",
)
"""The beginnings of the requests in which Claude Code (2.1) and Codex (0.5 and later) let the model summarize, in small
letters. Not a regular expression: one that ignores case takes a second for each million characters."""


@dataclass(frozen=True, slots=True)
class ClientSession:
    """The client's own id of a conversation, and that of the conversation that started it."""

    session_id: str
    parent: str | None = None


def client_session(headers: Iterable[tuple[bytes, bytes]], metadata: Any, cache_key: Any) -> ClientSession | None:
    """The conversation that the client names in its headers, or else in the body's `metadata`; None if the request
    has no id. Only Codex puts the id of a conversation into `prompt_cache_key`: others name a program or a prompt
    there, for all its users."""
    found = dict(headers)
    named = next((value.decode("latin-1") for name in _SESSION_HEADERS if (value := found.get(name))), None)
    if named is None:
        user_id = metadata.get("user_id") if isinstance(metadata, dict) else None
        named = _of_user_id(user_id) if isinstance(user_id, str) else None
    if named is None and isinstance(cache_key, str) and agent_of(found.items()) == "codex":
        named = cache_key
    session_id = _safe(named) if named else None
    if session_id is None:
        return None
    parent = _safe(found.get(_PARENT_HEADER, b"").decode("latin-1"))
    return ClientSession(session_id, parent if parent != session_id else None)


def _of_user_id(user_id: str) -> str | None:
    if user_id.startswith("{"):
        try:
            parsed = json.loads(user_id)
        except ValueError:
            return None
        found = parsed.get("session_id") if isinstance(parsed, dict) else None
        return found if isinstance(found, str) else None
    match = _IN_USER_ID.search(user_id)
    return match[1] if match else None


def _safe(name: str) -> str | None:
    """The name as the id of a session. One that had to be changed ends with its hash, so that two names never stand for
    one session, and none for the session of outputs that belong to no conversation."""
    safe = _SAFE.sub("_", name)[:MAX_ID]
    if not name or (safe == name and not is_archive_id(name)):
        return name or None
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{safe[: MAX_ID - 9]}-{digest}"


def agent_of(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The name of the client's agent, as its transcripts are recorded."""
    user_agent = dict(headers).get(b"user-agent", b"").lower()
    if b"claude-cli" in user_agent or b"claude-code" in user_agent:
        return "claude-code"
    return "codex" if b"codex" in user_agent else "proxy"


def is_compaction(last_message: Mapping[str, Any]) -> bool:
    """Whether the last message of a request asks the model for the client's own summary of the conversation, or OpenAI
    for its own compaction (Codex, seen in 0.169)."""
    if last_message.get("type") == "compaction_trigger":
        return True
    return any(phrase in text for text in _texts_of(last_message) for phrase in _COMPACTION)


_CONTINUES = (
    "this session is being continued from a previous conversation",
    "another language model started to solve this problem",
)
"""The text before a summary in the message that begins the conversation after it: Claude Code (2.1) and Codex."""


def continues_summary(first_message: Mapping[str, Any]) -> bool:
    """Whether a conversation begins with the client's own summary of what was before."""
    return any(phrase in text for text in _texts_of(first_message) for phrase in _CONTINUES)


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
