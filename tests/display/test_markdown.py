"""What a model wrote, as HTML: emphasis and lists, but nothing that leads or reaches elsewhere."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from contextstash.display.template_filters import as_html
from tests.support.effort import examples

HOSTILE = (
    "<script>alert(1)</script>",
    "[a](javascript:alert(1))",
    "![a](https://example.org/x.png)",
    "<https://example.org>",
    "<img src=x onerror=alert(1)>",
    "[a]: https://example.org\n\n[a]",
    "&lt;b&gt;",
)


def test_headings_lists_tables_and_emphasis_are_shown() -> None:
    html = as_html("# Plan\n\n1. **first** `code`\n2. second\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\none\ntwo")
    for tag in ("<h1>Plan</h1>", "<ol>", "<strong>first</strong>", "<code>code</code>", "<td>1</td>", "one<br"):
        assert tag in html


@settings(max_examples=examples(50))
@given(st.lists(st.sampled_from(HOSTILE) | st.text("<>&\"'`[]()!# \n-*_", max_size=20), max_size=8).map("".join))
def test_no_text_brings_an_address_or_a_tag_of_its_own(text: str) -> None:
    html = as_html(text)
    assert not re.search(r"<(?:a|img|script)\b|\s(?:href|src|on\w+)=\"", html)
