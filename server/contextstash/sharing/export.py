"""The export of a session: whole, or as messages, view or an HTML page."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from contextstash.sharing.html import PAGE_MESSAGES, html_pieces

if TYPE_CHECKING:
    from contextstash.stash import Stash

Form = Literal["session", "messages", "view", "html"]

FORMS: tuple[Form, ...] = ("session", "messages", "view", "html")

SUFFIXES: dict[str, Form] = {
    ".jsonl": "session",
    ".html": "html",
    ".htm": "html",
}

WHOLE_VIEW = 2**40
"""Tokens: a budget that no view exceeds."""


def form_of(path: Path | None) -> Form:
    """The form for the suffix of a file's name."""
    return SUFFIXES.get(path.suffix.lower(), "session") if path else "session"


async def exported_text(stash: Stash, session_id: str, form: Form) -> AsyncIterator[str]:
    """The text of a session in a form, in pieces: one page of messages is in memory at a time. Raises
    SessionNotFoundError before the first piece if the session does not exist."""
    async for piece in _PIECES[form](stash, session_id):
        yield piece


async def _session(stash: Stash, session_id: str) -> AsyncIterator[str]:
    async for record in stash.export_session(session_id):
        yield json.dumps(record, separators=(",", ":")) + "\n"


async def _messages(stash: Stash, session_id: str) -> AsyncIterator[str]:
    first: int | None = 0
    while first is not None:
        page = await stash.read_messages(session_id, first=first, limit=PAGE_MESSAGES)
        for line in page.messages:
            yield json.dumps(line.message) + "\n"
        first = page.next_seq


async def _view(stash: Stash, session_id: str) -> AsyncIterator[str]:
    """The messages of the view, which fits into memory because it fits into a window."""
    for message in await stash.export_view(session_id, WHOLE_VIEW):
        yield json.dumps(message) + "\n"


_PIECES: dict[Form, Callable[[Stash, str], AsyncIterator[str]]] = {
    "session": _session,
    "messages": _messages,
    "view": _view,
    "html": html_pieces,
}
