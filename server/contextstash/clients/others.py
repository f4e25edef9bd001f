"""Clients that take an MCP server, and no more, and plain files of messages.

Sources: the clients' own documentation of their configuration files, read in November 2026.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

from contextstash.base.files import read_regular
from contextstash.clients.client import Client, Entry, below, typed
from contextstash.clients.transcripts import (
    Head,
    Json,
    Line,
    Reader,
    State,
    objects,
    parse_document,
    split_lines,
)
from contextstash.messages.detection import FORMATS, detect_format, get_format
from contextstash.record.transcript_records import TranscriptMessage
from contextstash_storage.errors import BadMessageError

LISTS = ("messages", "input", "contents", "history", "clientHistory")
"""The fields of objects that hold messages: requests to the three kinds of API, and Gemini CLI's checkpoints, of
`/chat save` and of tool calls."""


def _claims(head: Head) -> bool:
    messages = _messages_of(head.document)
    # An item of Responses is any object with a type: a list of nothing else may be something different.
    if not any("role" in each and {"content", "parts"} & each.keys() for each in messages):
        return False
    try:
        _format_of(messages)
    except BadMessageError:
        return False
    return True


def _format_of(messages: Iterable[Json]) -> str:
    """The format of the messages that can be read; those that cannot are refused one by one when they are recorded."""
    readable = [each for each in messages if any(get_format(name).fits(each) for name in FORMATS)]
    return detect_format(readable) if readable else FORMATS[0]


def _load(path: Path) -> list[Json]:
    data = read_regular(path)
    document = parse_document(data)
    if document is None:
        return [line.record for line in split_lines(data, at_end=True)[0]]
    return _messages_of(document)


def _said(lines: Iterable[Line], state: State, source: str) -> list[TranscriptMessage]:
    """The messages as they are: they have no ids of their own. If some were replaced, the view holds the new ones, and
    the old ones stay in the history."""
    bodies = [line.record for line in lines]
    if bodies:
        found = state.setdefault("format", _format_of(bodies))
        state.update(session=session_id_of(source), agent="gemini" if found == "gemini" else None)
    return [TranscriptMessage(body) for body in bodies]


MESSAGES = Reader("messages", None, _claims, _said, _load)
"""A list of provider messages, which is the whole conversation."""


def session_id_of(source: str) -> str:
    """A session id made of the file's name and a hash of its path, which distinguishes files with the same name."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(source).stem).strip("-")[:80] or "session"
    return f"{stem}-{hashlib.sha256(source.encode('utf-8', 'surrogatepass')).hexdigest()[:6]}"


def _messages_of(document: object) -> list[Json]:
    """The messages of a document, a list or an object with one; none if it does not hold a list of messages."""
    if isinstance(document, dict):
        document = next((found for key in LISTS if isinstance(found := document.get(key), list)), [document])
    found = objects(document)
    return found if isinstance(document, list) and len(found) == len(document) else []


CLIENTS = (
    Client(
        "claude-desktop",
        entry=Entry("json", "mcpServers", lambda at: at.configuration / "Claude" / "claude_desktop_config.json"),
    ),
    Client("cursor", entry=Entry("json", "mcpServers", below(".cursor", "mcp.json"))),
    Client("vscode", entry=Entry("json", "servers", lambda at: at.configuration / "Code" / "User" / "mcp.json", typed)),
)
