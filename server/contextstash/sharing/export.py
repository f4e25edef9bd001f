"""The export of a session: whole, or as messages or an HTML page.

The page loads nothing and runs no script. Every text is escaped but our own style sheet."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Literal

from contextstash import __version__
from contextstash.display import style_sheet
from contextstash.display.template_filters import environment, seer

if TYPE_CHECKING:
    from contextstash.stash import Stash

PAGE_MESSAGES = 200
"""Messages in memory at a time."""


async def html_pieces(stash: Stash, session_id: str) -> AsyncIterator[str]:
    """The page, in pieces: a head and each message, before the first one that a summary replaces the summary."""
    templates = environment("contextstash.sharing")
    head, messages = map(templates.get_template, ("head.html", "message.html"))
    yield head.render(status=await stash.context_status(session_id), version=__version__, style=style_sheet())
    first: int | None = 0
    while first is not None:
        page = await stash.read_shown_messages(session_id, first=first, limit=PAGE_MESSAGES)
        beginning = {summary.first_seq: summary for summary in page.summaries}
        for message in page.messages:
            summary = beginning.get(message.seq)
            yield messages.render(message=message, summary=summary, seer=seer(page.client_sends_history))
        first = page.next_seq
    yield "</main>\n</body>\n</html>\n"


Form = Literal["session", "messages", "html"]


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


PIECES: dict[Form, Callable[[Stash, str], AsyncIterator[str]]] = {
    "session": _session,
    "messages": _messages,
    "html": html_pieces,
}
"""The text of a session in each form, in pieces: one page of messages is in memory at a time. Raises
SessionNotFoundError before the first piece if the session does not exist."""
