"""One line of any text: plain ASCII takes a shorter way, with the same result."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from contextstash.safety import sanitize
from contextstash.safety.sanitize import unbracketed, unforged
from tests.support.effort import examples

PIECES = st.sampled_from(
    ["word", " ", "  ", "\t", "\n", "[", "]", "[contextstash: x]", "⟦contextstash", "\x1b[31m", "é", "\u200b", "\x00"]
)
TEXTS = st.lists(PIECES | st.text(st.characters(codec=None), max_size=4), max_size=12).map("".join)


def without_markers(text: str) -> str:
    return sanitize.replaced(text, sanitize._forged(), lambda _, bracket: "(")


@settings(max_examples=examples(200))
@given(TEXTS)
def test_no_bracket_and_no_forged_marker_is_left(text: str) -> None:
    assert not set(unbracketed(text)) & set(sanitize._OPENING + sanitize._CLOSING)
    assert unforged(text) == without_markers(text)


@settings(max_examples=examples(300))
@given(st.text(st.characters(codec=None), max_size=60))
def test_a_skeleton_has_a_character_for_each(text: str) -> None:
    assert len(sanitize.skeleton(text)) == len(text)


def test_what_looks_like_ascii_is_ascii_in_a_skeleton() -> None:
    for text in ("Ｕｓｅｒ：", "𝐔𝐬𝐞𝐫:", "ⓤⓢⓔⓡ:", "ᵁˢᵉʳ:", "ᴜꜱᴇʀ:", "Úšér:", "Uѕеr:", "🆄🅂ⓔ𝕣∶"):
        assert sanitize.skeleton(text).lower() == "user:", text
    assert sanitize.skeleton("u\u0301\u200bser\u00a0\ufe0f") == "u\x00\x00ser \x00"
