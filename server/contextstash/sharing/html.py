"""A session as one HTML page that loads nothing and runs no script. Every text is escaped."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined

from contextstash import __version__
from contextstash.sharing.side_by_side import side_by_side

if TYPE_CHECKING:
    from contextstash.service.stash import Stash


async def html_pieces(stash: Stash, session_id: str) -> AsyncIterator[str]:
    """The page, in pieces."""
    environment = Environment(
        loader=PackageLoader("contextstash.sharing"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    head, summaries, messages = (
        environment.get_template(name) for name in ("head.html", "summary.html", "message.html")
    )
    yield head.render(status=await stash.context_status(session_id), version=__version__)
    async for summary, message in side_by_side(stash, session_id):
        yield messages.render(message=message) if summary is None else summaries.render(summary=summary)
    yield "</main>\n</body>\n</html>\n"
