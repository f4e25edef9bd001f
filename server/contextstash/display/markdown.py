"""Markdown as HTML, for texts that a model wrote. They are not trusted: no HTML of theirs, no link, no picture."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

ADDRESSES = ("link", "image", "autolink", "linkify", "reference", "html_block", "html_inline")
"""Kept as text: an address in a recorded text may lead anywhere, and a browser fetches a picture without asking."""


MAX_MARKDOWN = 20_000
"""Characters of a text that is read as Markdown, which takes up to 0.1 s; a longer one is shown as it was written."""


def as_html(text: str) -> str:
    """The text with its headings, lists, tables and emphasis as HTML that is safe; everything else in it is escaped."""
    return str(_parser().render(text))


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    # "breaks": a model's line breaks are meant, and stood in the terminal where it wrote them.
    return (
        MarkdownIt("commonmark", {"html": False, "breaks": True}).enable("table").disable(ADDRESSES, ignoreInvalid=True)
    )
