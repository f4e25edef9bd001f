"""Control characters of recorded texts become visible; everything else stays as it is."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2 import Environment
from markupsafe import Markup

from contextstash.display import BIDI_CONTROLS, in_page, visible, visible_json
from tests.support.effort import examples

CONTROLS = "".join(map(chr, [*range(9), *range(11, 32), *range(127, 160)])) + BIDI_CONTROLS
"""All but line breaks and tabs."""


@settings(max_examples=examples(100))
@given(st.text(st.sampled_from(CONTROLS + "\n\tab ]0;[31m")))
def test_no_control_character_is_left_but_line_breaks_and_tabs(text: str) -> None:
    assert not set(visible(text)) & set(CONTROLS)


def test_an_escape_sequence_is_named_and_text_with_line_breaks_alone_is_unchanged() -> None:
    assert visible("\x1b]0;title\x07 \u202egnihtemos\x9b2J") == "␛]0;title␇ ‹U+202E›gnihtemos‹U+009B›2J"
    assert visible("naïve 日本語 👩‍🌾\n\ttabbed") == "naïve 日本語 👩‍🌾\n\ttabbed"
    assert visible("safe\r\nnext\rhidden") == "safe\nnext␍hidden"


@settings(max_examples=examples(50))
@given(st.dictionaries(st.text(st.sampled_from(CONTROLS + 'ab"\\')), st.text(st.sampled_from(CONTROLS + 'ab"\\'))))
def test_json_keeps_its_meaning(document: dict[str, str]) -> None:
    shown = visible_json(json.dumps(document, ensure_ascii=False))
    assert json.loads(shown) == document
    assert not set(shown) & set(CONTROLS)


def test_a_template_never_puts_a_control_character_into_a_page() -> None:
    environment = Environment(autoescape=True, finalize=in_page)
    page = environment.from_string("<p>{{ text }}</p>{{ markup }}")
    shown = page.render(text="\x1b[31m<b>red", markup=Markup("<i>\x1b]0;title\x07</i>"))
    assert shown == "<p>␛[31m&lt;b&gt;red</p><i>␛]0;title␇</i>"
