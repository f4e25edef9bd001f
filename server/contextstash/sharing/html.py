"""A session as one HTML page that loads nothing and runs no script. Every text is escaped but our own style sheet."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from contextstash import __version__
from contextstash.display import style_sheet
from contextstash.display.blocks import Shown, shown
from contextstash.display.template_filters import FILTERS, seer
from contextstash.display.visible_text import in_page
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
    environment = Environment(
        loader=ChoiceLoader([PackageLoader("contextstash.sharing"), PackageLoader("contextstash.display")]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=in_page,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {**FILTERS, "shown": _shown}
    head, summaries, messages = (
        environment.get_template(name) for name in ("head.html", "summary.html", "message.html")
    )
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
