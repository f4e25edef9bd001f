"""A hand-off in parts: whole lines, closed fences, nothing lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextstash.request.handoff import PART_HEAD_CHARACTERS, Part, divided
from tests.support.turns import laws

LINES = st.lists(st.sampled_from(["a line of words", "", "```", "x" * 90, "- an item"]), min_size=1, max_size=60)


@laws
@given(LINES, st.integers(300, 600))
def test_the_parts_hold_all_lines_in_order_and_none_is_too_long(lines: list[str], characters: int) -> None:
    text = "\n".join(lines)
    parts = divided(text, characters)
    assert all(len(part) <= characters for part in parts)
    shown = [
        line for part in parts for line in part.split("\n") if line.strip(" `") and not line.startswith("[context")
    ]
    assert shown == [line for line in lines if line.strip(" `")]


def test_a_text_that_fits_is_one_part_without_a_head() -> None:
    assert divided("short", 300) == ["short"]


def test_code_that_is_divided_is_fenced_in_each_part() -> None:
    text = "\n".join(["before", "```", *(f"line {number}" for number in range(60)), "```", "after"])
    first, second, *_ = divided(text, 300)
    assert first.startswith("[contextstash: part 1 of ")
    assert first.endswith("\n```")
    assert second.split("\n")[1] == "```"
    assert all(part.count("```") == 2 for part in divided(text, 300)[:-1])


@pytest.mark.parametrize(("tokens", "used"), [(300, 1), (2_500, 1), (5_000, 2), (8_000, 3), (50_000, 3)])
def test_no_more_parts_are_used_than_the_hand_off_needs(tokens: int, used: int) -> None:
    assert Part(1, 3, 9_800).used(tokens) == used
    assert Part(1, 3, None).used(tokens) == 1
    assert len(divided("x\n" * 400, 300)[1].split("\n", 1)[0]) + 10 < PART_HEAD_CHARACTERS
