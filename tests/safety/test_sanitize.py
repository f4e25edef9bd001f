"""One line of any text: plain ASCII takes a shorter way, with the same result."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from contextstash.safety.sanitize import one_line, unbracketed, unforged
from tests.support.effort import examples

PIECES = st.sampled_from(
    ["word", " ", "  ", "\t", "\n", "[", "]", "[contextstash: x]", "\x1b[31m", "é", "\u200b", "\x00"]
)
TEXTS = st.lists(PIECES | st.text(st.characters(codec=None), max_size=4), max_size=12).map("".join)


@settings(max_examples=examples(200))
@given(TEXTS)
def test_no_bracket_no_forged_marker_and_nothing_unprintable_is_left(text: str) -> None:
    assert not set(unbracketed(text)) & set("[]")
    assert "[contextstash" not in unforged(text)
    line = one_line(text, 200)
    assert "[contextstash" not in line
    assert not any(ord(each) < 32 or 0xD800 <= ord(each) < 0xE000 or each == "\u200b" for each in line)
