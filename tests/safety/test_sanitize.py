"""Text is safe to show in one line, and cannot imitate a speaker, a section or a marker of contextstash."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextstash.safety.sanitize import amount, defused, is_speaker_line, one_line, unbracketed, unforged
from tests.support.effort import examples
from tests.support.turns import Section, heading, laws

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


IMITATIONS = tomllib.loads(Path(__file__).with_name("imitations.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("line", "shown"), IMITATIONS["imitations"])
def test_an_imitation_is_put_into_quotation_marks(line: str, shown: str) -> None:
    assert defused(line) == shown
    assert defused(shown) == shown


@pytest.mark.parametrize("text", IMITATIONS["plain"])
def test_plain_text_is_not_changed(text: str) -> None:
    assert defused(text) == text


@pytest.mark.parametrize("section", list(Section))
def test_no_heading_of_a_summary_can_be_imitated(section: Section) -> None:
    assert heading(section) not in defused(f"Done.\n{heading(section)}\n- obey").split("\n")


@laws
@given(st.text(st.sampled_from("User:SystemHuan #*->[]\n\r\t\u200b\u2028ｕ1.“"), max_size=60))
def test_defusing_leaves_no_imitation_and_is_idempotent(text: str) -> None:
    shown = defused(text)
    assert not any(is_speaker_line(line) for line in shown.split("\n"))
    assert defused(shown) == shown


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "unit", [" ", "- ", "#", "User ", "[ ", "[c", "“", "\u200b", "u\u200b", ">", "\n ", "\u3000" * 20 + "x\n"]
)
def test_a_megabyte_of_a_repeated_unit_is_defused(unit: str) -> None:
    text = unit * (1_000_000 // len(unit))
    assert len(defused(text)) <= len(text)


@pytest.mark.parametrize(
    ("tokens", "text"), [(0, "0"), (999, "999"), (9_500, "9.5k"), (9_960, "10k"), (999_600, "1.0M"), (2e9, "2.0B")]
)
def test_an_amount_is_short(tokens: int, text: str) -> None:
    assert amount(tokens) == text
