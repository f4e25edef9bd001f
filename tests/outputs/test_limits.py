"""Limits on one output: each preset's limit just below, at and just above it, and the laws that hold for all."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextstash.outputs.limits import OutputLimits, byte_length, limit, line_count, shared_limit
from contextstash.window.settings import resolve_settings
from contextstash.window.token_counters import RULES_OF_THUMB
from tests.support.turns import laws, quarter

HANDLE = "out_k3f9x2ab"


def limits_of(preset: str) -> OutputLimits:
    return OutputLimits.of(resolve_settings({"preset": preset}))


def limited(preset: str, text: str) -> str:
    """A text within a preset's limits, counted as the preset counts."""
    count = RULES_OF_THUMB.get(resolve_settings({"preset": preset}).estimator, RULES_OF_THUMB["chars"]).count
    return limit(text, limits_of(preset), count, HANDLE)


def numbered(characters: int) -> str:
    """A text of that many characters in which no line is repeated."""
    lines = "".join(f"{number:07d}\n" for number in range(characters // 8 + 1))
    return lines[:characters]


def parts(shown: str) -> tuple[str, str, str]:
    """The head, the first notice and the tail of an excerpt."""
    head, _, rest = shown.partition("[contextstash: ")
    notice, _, tail = rest.partition("]")
    return head, notice, tail.removeprefix("\n")


def test_staged_cuts_one_byte_more_middle_out_to_half_the_limit_less_fifty_at_each_end() -> None:
    text = numbered(50_001)
    shown = limited("staged", text)
    head, notice, tail = parts(shown)
    assert (head, tail) == (text[:24_950] + "\n", text[-24_950:])
    assert notice == "13 lines, 101 bytes cut here; whole output: out_k3f9x2ab"
    assert len(shown) <= 50_000


def test_token_budget_cuts_one_character_more_to_4950_characters_at_each_end() -> None:
    text = numbered(10_001)
    shown = limited("token-budget", text)
    head, _, tail = parts(shown)
    assert (head, tail) == (text[:4_950] + "\n", text[-4_950:])
    assert quarter(shown) <= 2_500


def test_rolling_cuts_one_line_more_with_a_notice_at_the_cut() -> None:
    text = "".join(f"line {number}\n" for number in range(1, 2_002))
    lines = limited("rolling", text).split("\n")
    assert lines[:1_000] == text.split("\n")[:1_000]
    assert lines[1_000] == "[contextstash: 2 lines, 20 characters cut here; whole output: out_k3f9x2ab]"
    assert lines[1_001:] == text.split("\n")[1_002:]


def test_a_preview_names_handle_size_and_checksum_and_shows_head_and_tail() -> None:
    text = numbered(300_000)
    head, notice, tail = parts(limited("rolling", text))
    assert notice.startswith("too large to show: 37,500 lines, 300,000 characters, 300,000 bytes, SHA-256 ")
    assert hashlib.sha256(text.encode()).hexdigest() in notice
    assert HANDLE in notice
    assert 1_800 < len(head + tail) <= 2_100
    assert text.startswith(head.rstrip())
    assert text.endswith(tail)


def test_byte_budget_cuts_one_byte_more_to_the_first_four_thousand_with_a_notice_added() -> None:
    text = numbered(4_001)
    notice = "[contextstash: 1 byte cut here; whole output: out_k3f9x2ab]"
    assert limited("byte-budget", text) == f"{text[:4_000]}{notice}"


def test_n_or_k_limits_no_output() -> None:
    assert limited("n-or-k", numbered(1_000_000)) == numbered(1_000_000)


BUILD = [f"compiling module {number} of 900" for number in range(1, 901)]


def test_smart_shows_errors_and_counts_between_the_ends_with_their_line_numbers() -> None:
    lines = BUILD.copy()
    lines[299] = "src/a.py:3: error: Name 'x' is not defined"
    lines[600] = "2 failed, 41 passed in 3.2s"
    lines[700] = "warning: unused import"
    shown = limit("\n".join(lines), OutputLimits(tokens=300), quarter, HANDLE)
    assert shown.startswith("compiling module 1 of 900\n")
    assert shown.endswith("\ncompiling module 900 of 900")
    middle = shown[shown.index("[") : shown.index(" on:]")].split("\n")
    assert middle[0].endswith(f"cut here; whole output: {HANDLE}; the relevant lines:]")
    assert middle[1:4] == [
        "300: src/a.py:3: error: Name 'x' is not defined",
        "601: 2 failed, 41 passed in 3.2s",
        "701: warning: unused import",
    ]
    assert middle[4].startswith("[contextstash: from line ")


def test_smart_finds_an_error_far_inside_one_long_line() -> None:
    text = "a" * 400_000 + " Error: disk full " + "b" * 500_000
    assert "Error: disk full" in limit(text, OutputLimits(chars=2_000), quarter)


@pytest.mark.parametrize("cut", ["head", "head_tail", "middle"])
def test_a_surrogate_pair_is_not_cut_in_two(cut: Any) -> None:
    head, _, tail = parts(limit("\ud83d\ude00" * 500, OutputLimits(chars=303, cut=cut), quarter))
    assert (len(head.rstrip()) % 2, len(tail) % 2) == (0, 0)


output_lines = st.sampled_from(["error: no", "all fine", "3 failed", "x" * 90, "fatal: 漢", ""])
anything = (
    st.text(st.characters(), max_size=600)
    | st.text("aé漢😀\n\ud83d\ude00\u0301\r", max_size=600)
    | st.lists(output_lines, max_size=80).map("\n".join)
)
some_limits = st.builds(
    OutputLimits,
    lines=st.none() | st.integers(1, 30),
    chars=st.none() | st.integers(1, 500),
    bytes=st.none() | st.integers(1, 600),
    tokens=st.none() | st.integers(1, 150),
    cut=st.sampled_from(["head", "head_tail", "middle", "smart"]),
    spill_chars=st.none() | st.integers(1, 600),
)


def uneven(text: str) -> int:
    """A count of tokens in which the pieces of a text do not add up to the whole."""
    return len(text.split()) + len(text) // 5


@laws
@given(anything, some_limits, st.sampled_from([quarter, uneven]), st.sampled_from(["", HANDLE]))
def test_no_limit_is_ever_exceeded_notice_included(text: str, limits: OutputLimits, count: Any, handle: str) -> None:
    shown = limit(text, limits, count, handle)
    assert limits.lines is None or line_count(shown) <= limits.lines
    assert limits.chars is None or len(shown) <= limits.chars
    assert limits.bytes is None or byte_length(shown) <= limits.bytes
    assert limits.tokens is None or count(shown) <= limits.tokens
    assert (shown == text) == limits.holds(text, count)


@laws
@given(anything, some_limits, st.sampled_from(["within", "beside"]))
def test_head_and_tail_are_unchanged(text: str, limits: OutputLimits, notice: Any) -> None:
    limits = replace(limits, notice=notice)
    shown = limit(text, limits, quarter, HANDLE)
    if not limits.holds(text, quarter):
        assert text.lstrip().startswith(parts(shown)[0].strip())
        assert text.endswith(shown.rpartition("]\n")[2]) or "]\n" not in shown


@laws
@given(anything, some_limits)
def test_a_text_that_cannot_exceed_a_limit_is_known_without_reading_it(text: str, limits: OutputLimits) -> None:
    if not limits.may_cut(len(text), quarter(text)):
        assert limits.holds(text, quarter)


@pytest.mark.parametrize(
    ("window", "tokens"),
    [(200_000, 10_000), (64_000, 8_000), (32_000, 4_000), (24_000, 4_000), (16_000, 4_000), (8_000, 2_000), (4, 1)],
)
def test_one_output_takes_an_eighth_of_the_window_and_of_a_small_one_more(window: int, tokens: int) -> None:
    assert OutputLimits.of(resolve_settings({}), window).tokens == tokens


def test_of_outputs_that_share_room_the_small_ones_stay_whole() -> None:
    assert shared_limit([100, 5_000, 5_000], 4_100) == 2_000
    assert shared_limit([100, 200], 4_000) == 200
    assert shared_limit([], 4_000) == 1
