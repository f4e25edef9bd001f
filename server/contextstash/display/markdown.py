"""Markdown as HTML, for texts that a model wrote. They are not trusted: no HTML of theirs, no link, no picture."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

ADDRESSES = ("link", "image", "autolink", "linkify", "reference", "html_block", "html_inline")
"""Kept as text: an address in a recorded text may lead anywhere, and a browser fetches a picture without asking."""


MAX_MARKDOWN = 20_000
"""Characters of a text that is read as Markdown, which takes up to 0.1 s; a longer one is shown as it was written."""

_ACTIVE = frozenset({"html_block", "html_inline", "image"})

_UNCLEAR = re.compile(r"!\[|\](?:\(|:)|</?[a-z!?]", re.IGNORECASE)
"""Characters that are text to this parser, but may begin a picture, a link or a tag for another one."""

_LINKS = re.compile(r"https?://|mailto:", re.IGNORECASE)
"""An address without a scheme leads into the folder that the document lies in, of whoever opens it."""


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


def is_passive(text: str) -> bool:
    """Whether a text that is rendered as Markdown elsewhere stays text: no HTML, no picture, no link but to a page."""
    if len(text) > MAX_MARKDOWN:
        return False
    found: dict[str, dict[str, dict[str, str]]] = {}
    tokens = _full_parser().parse(text, found)
    links = [reference["href"] for reference in found.get("references", {}).values()]
    return all(map(_LINKS.match, links)) and all(map(_is_passive, _flat(tokens)))


def _flat(tokens: Sequence[Token]) -> list[Token]:
    return [each for token in tokens for each in (token, *_flat(token.children or ()))]


def _is_passive(token: Token) -> bool:
    if token.type == "link_open":
        return _LINKS.match(str(token.attrGet("href"))) is not None
    return token.type not in _ACTIVE and not (token.type == "text" and _UNCLEAR.search(token.content))


@cache
def _full_parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark").enable("table")
