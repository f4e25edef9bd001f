"""How a text is cut to the room that it has."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from contextstash.handoff.fill import Section, cut_middle, fill, newest_cut
from tests.support.turns import laws, quarter

REPORT = """The review is done. I read the whole module first. It took a while. That was worth it.
The names are clear to me. The style is even. The tests are short.
`charge_fine` runs twice, in src/day.py:41 and src/loan.py:7. I like the rest, which is as it was before.
There is more to say. It can wait. Fix the daily run first."""


def test_of_a_long_text_the_beginning_the_end_and_what_names_something_stay() -> None:
    listed = "I looked.\nIt is clear:\n- all of it\n- or most\nNot done, as you said:"
    listed += "\n- a_b in src/c.py\n- the rest\nThat is it."
    assert "[…]\nNot done, as you said:\n- a_b in src/c.py\n[…]" in cut_middle(listed, 26, quarter)
    with_gap = REPORT.replace(" The tests", " […] The tests")  # as notes have them
    assert "[…] […]" not in cut_middle(with_gap, 40, quarter)
    assert cut_middle(REPORT, 40, quarter) == (
        "The review is done. […] The tests are short.\n`charge_fine` runs twice, in src/day.py:41 and src/loan.py:7."
        " […] Fix the daily run first."
    )


def test_the_newest_items_stand_before_older_short_ones_but_those_told_first() -> None:
    items = ["Let me check the log.", "committed a1b2c3d", REPORT, "Both are fixed now."]
    shown = newest_cut(items, [50] * 4, 60, quarter, first=[1])
    assert (shown[0], shown[-1], len(shown)) == (items[1], items[3], 3)
    assert shown[1].startswith("The review is done. […]")
    assert cut_middle(f"Done. {REPORT}", 40, quarter).startswith("Done. The review is done. […]")


@laws
@given(st.text(st.sampled_from("ab1 .!?\n`/。"), max_size=300), st.integers(0, 60))
def test_a_text_is_never_longer_than_its_room(text: str, room: int) -> None:
    assert quarter(cut_middle(text, room, quarter)) <= room


def test_a_section_that_takes_its_whole_room_is_not_left_out() -> None:
    whole = Section("Words", 1.0, 0, lambda room: ["x" * (room - 1)])
    assert fill([whole], 100, len)
