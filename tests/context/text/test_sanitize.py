"""One line of any text: plain ASCII takes a shorter way, with the same result."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from contextstash.context.text import sanitize
from contextstash.context.text.sanitize import one_line, unbracketed, unforged
from tests.support.effort import examples

PIECES = st.sampled_from(
    ["word", " ", "  ", "\t", "\n", "[", "]", "[contextstash: x]", "⟦contextstash", "\x1b[31m", "é", "\u200b", "\x00"]
)
TEXTS = st.lists(PIECES | st.text(st.characters(codec=None), max_size=4), max_size=12).map("".join)


def by_expressions(text: str, max_chars: int) -> str:
    """The same by regular expressions alone."""
    shown = sanitize.without_ansi(text[: 8 * max_chars + 200])
    shown = sanitize._SPACES.sub(" ", sanitize._UNPRINTABLE.sub(" ", shown)).strip()
    return sanitize.clip(sanitize._forged().sub("(", shown), max_chars)


@settings(max_examples=examples(300), deadline=None)
@given(TEXTS, st.integers(0, 60))
def test_one_line_is_the_same_as_by_regular_expressions_alone(text: str, max_chars: int) -> None:
    assert one_line(text, max_chars) == by_expressions(text, max_chars)


@settings(max_examples=examples(200), deadline=None)
@given(TEXTS)
def test_no_bracket_and_no_forged_marker_is_left(text: str) -> None:
    assert not set(unbracketed(text)) & set(sanitize._OPENING + sanitize._CLOSING)
    assert unforged(text) == sanitize._forged().sub("(", text)
