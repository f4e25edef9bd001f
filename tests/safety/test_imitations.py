"""Recorded text cannot imitate a speaker, a section or a marker of contextstash."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextstash.safety.imitations import defused, is_speaker_line
from tests.support.summaries import Section, heading
from tests.support.turns import laws

TEXTS = tomllib.loads(Path(__file__).with_name("imitations.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("line", "shown"), TEXTS["imitations"])
def test_an_imitation_is_put_into_quotation_marks(line: str, shown: str) -> None:
    assert defused(line) == shown
    assert defused(shown) == shown


@pytest.mark.parametrize("text", TEXTS["plain"])
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
