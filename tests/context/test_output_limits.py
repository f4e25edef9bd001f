"""Limits on one output: the rules of the parent designs, and that nothing is ever longer than its limit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from making_turns import laws

from contextstash.context.limits import byte_length, important_lines, limit_output, line_count, middle_out

anything = st.text(st.characters(), max_size=600) | st.text("aé漢😀\n\ud83d\ude00", max_size=600)


def test_text_within_the_token_limit_stays_as_it_is() -> None:
    limited = middle_out("x" * 10_000, max_tokens=2_500)
    assert limited.text == "x" * 10_000
    assert not limited.cut


def test_middle_out_by_tokens_keeps_half_the_characters_less_fifty_at_each_end() -> None:
    text = "".join(f"{number:07d}\n" for number in range(5_000))
    limited = middle_out(text, max_tokens=2_500)
    assert limited.text.startswith(text[:4_950] + "\n\n[")
    assert limited.text.endswith("]\n\n" + text[-4_950:])
    assert limited.characters == len(text) - 9_900
    assert limited.notice == "[… 30,100 characters cut from the middle …]"
    assert limited.notice in limited.text


def test_middle_out_by_bytes_never_cuts_inside_a_character() -> None:
    text = "é" * 40_000
    limited = middle_out(text, max_bytes=50_000)
    start, _, end = limited.text.partition("\n\n[")
    assert set(start) == {"é"}
    assert byte_length(start) == 24_950
    assert byte_length(end.partition("]\n\n")[2]) == 24_950


def test_a_surrogate_pair_kept_as_two_characters_is_not_cut_in_two() -> None:
    limited = middle_out("\ud83d\ude00" * 400, max_tokens=101)
    for part in (limited.text.partition("\n\n[")[0], limited.text.rpartition("]\n\n")[2]):
        assert part == "\ud83d\ude00" * (len(part) // 2)


@laws
@given(anything, st.integers(0, 200))
def test_middle_out_by_tokens_is_never_longer_than_its_limit(text: str, limit: int) -> None:
    limited = middle_out(text, max_tokens=limit)
    assert len(limited.text) <= 4 * limit
    assert limited.cut == (limited.text != text)


@laws
@given(anything, st.integers(0, 800))
def test_middle_out_by_bytes_is_never_longer_than_its_limit(text: str, limit: int) -> None:
    limited = middle_out(text, max_bytes=limit)
    assert byte_length(limited.text) <= limit
    if limited.cut:
        assert byte_length(text) > limit
        assert limited.characters > 0


@laws
@given(
    anything,
    st.none() | st.integers(0, 30),
    st.none() | st.integers(0, 400),
    st.none() | st.integers(0, 500),
    st.sampled_from(["head", "head_tail"]),
)
def test_every_given_limit_holds_notice_included(
    text: str, lines: int | None, characters: int | None, size: int | None, keep: str
) -> None:
    limited = limit_output(
        text,
        max_lines=lines,
        max_chars=characters,
        max_bytes=size,
        keep="head" if keep == "head" else "head_tail",
    )
    assert lines is None or line_count(limited.text) <= lines
    assert characters is None or len(limited.text) <= characters
    assert size is None or byte_length(limited.text) <= size
    assert limited.cut or limited.text == text


def test_head_keeps_the_start_and_head_tail_both_ends() -> None:
    text = "".join(f"line {number}\n" for number in range(1, 101))
    head = limit_output(text, max_lines=12, keep="head").text
    both = limit_output(text, max_lines=12).text
    assert head.startswith("line 1\n")
    assert "line 10\n[…" in head
    assert "line 100" not in head
    assert both.startswith("line 1\n")
    assert both.endswith("line 100\n")
    assert "[… 716 characters, 90 line ends cut …]" in both


def test_important_lines_are_the_summary_line_and_the_errors_with_their_numbers() -> None:
    noise = [f"compiling module {number}" for number in range(300)]
    text = "\n".join([*noise, "src/a.py:3: error: Name 'x' is not defined", *noise, "2 failed, 41 passed in 3.2s"])
    shown = important_lines(text, 200)
    assert shown.split("\n") == [
        "301: src/a.py:3: error: Name 'x' is not defined",
        "602: 2 failed, 41 passed in 3.2s",
    ]


@laws
@given(st.lists(st.sampled_from(["error: a", "ok", "3 passed", "fatal " * 40])), st.integers(0, 300))
def test_important_lines_keep_to_their_budget(lines: list[str], budget: int) -> None:
    assert len(important_lines("\n".join(lines), budget)) <= budget


def test_exactly_one_limit_must_be_given_to_middle_out() -> None:
    with pytest.raises(TypeError):
        middle_out("text")
