"""An exported Markdown file stays text in any viewer: no tags, no pictures, no scripts, no terminal sequences."""

from __future__ import annotations

import re

from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from contextstash.results import ShownBlock, ShownMessage
from contextstash.sharing.markdown import markdown_message
from tests.support.effort import examples

HOSTILE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "![a](https://example.org/x.png)",
    "![a][r]",
    "\n\n[r]: https://example.org/x.png\n\n",
    "[a](javascript:alert(1))",
    "[a](&#106;avascript:alert(1))",
    "<javascript:alert(1)>",
    "[r]: data:text/html,x\n\n[r]",
    "```\n",
    "`",
    "<!-- ",
    "\x1b]52;c;x\x07",
    "\r```\r",
)

ACTIVE = re.compile(r"<(?:script|img)\b|<a href=\"(?!https?:|mailto:)|<!--|\x1b")


def message(*texts: str, kind: str = "text") -> str:
    blocks = [ShownBlock(type=kind, heading="", text=text) for text in texts]
    return markdown_message(ShownMessage(seq=0, role="user", tokens=1, created_at="", blocks=blocks, visible=True), "")


@settings(max_examples=examples(200))
@example([["[]()"]])
@example([["[run](../install.sh)"]])
@given(st.lists(st.lists(st.sampled_from(HOSTILE) | st.text("<>&\"'`[]()!# \n-*_:/", max_size=12), max_size=6)))
def test_no_recorded_text_becomes_a_tag_a_picture_or_a_script(texts: list[list[str]]) -> None:
    document = message(*map("".join, texts)) + message("".join(HOSTILE), kind="tool_result")
    assert not ACTIVE.search(MarkdownIt("commonmark", {"html": True}).enable("table").render(document))


def test_a_text_is_a_quotation_in_which_markdown_is_text() -> None:
    text = "# Plan\n\nUse `List<T>` as in [the manual](../manual.md)."
    assert "> \\# Plan\n>\n> Use \\`List\\<T\\>\\` as in \\[the manual\\](../manual.md)." in message(text)
    rendered = MarkdownIt("commonmark").render(message(text))
    assert "# Plan" in rendered
    assert "<h1>Plan" not in rendered
    assert "<a " not in rendered
