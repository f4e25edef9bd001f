"""The export of a session: whole, or as messages, view or an HTML page.

The page loads nothing and runs no script. Every text is escaped but our own style sheet."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from contextstash import __version__
from contextstash.display import style_sheet
from contextstash.display.blocks import Shown, shown
from contextstash.display.template_filters import environment, seer
from contextstash.results import ContextStatus, ShownMessage, ShownSummary

if TYPE_CHECKING:
    from contextstash.stash import Stash

PAGE_MESSAGES = 200
"""Messages in memory at a time."""


def seer_of(status: ContextStatus) -> str:
    """Who sees the view of a session. A client that sends its own history never shows it to its model."""
    return seer(status.estimate.view_tokens is not None)


async def shown_messages(stash: Stash, session_id: str) -> AsyncIterator[tuple[ShownSummary | None, ShownMessage]]:
    """The messages of a session in order. Before the first message that a summary replaces, the summary with it."""
    yielded: set[str] = set()
    first: int | None = 0
    while first is not None:
        page = await stash.read_shown_messages(session_id, first=first, limit=PAGE_MESSAGES)
        for message in page.messages:
            for summary in page.summaries:
                if summary.first_seq == message.seq and summary.summary_id not in yielded:
                    yielded.add(summary.summary_id)
                    yield summary, message
            yield None, message
        first = page.next_seq


async def html_pieces(stash: Stash, session_id: str) -> AsyncIterator[str]:
    """The page, in pieces."""
    templates = environment("contextstash.sharing", shown=_shown)
    head, summaries, messages = map(templates.get_template, ("head.html", "summary.html", "message.html"))
    status = await stash.context_status(session_id)
    seer = seer_of(status)
    yield head.render(status=status, version=__version__, style=style_sheet())
    async for summary, message in shown_messages(stash, session_id):
        if summary is None:
            yield messages.render(message=message, seer=seer)
        else:
            yield summaries.render(summary=summary, seer=seer)
    yield "</main>\n</body>\n</html>\n"


def _shown(text: str, kind: str) -> Shown:
    """A block without limit: a file that leaves the machine is whole."""
    return shown(kind, text, max(1, len(text)))


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
