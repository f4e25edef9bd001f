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


def test_of_a_long_text_whole_sentences_of_the_beginning_and_the_end_stay() -> None:
    told = "The review is done. I read the whole module first. It took a while. That was worth it.\n[…]\n"
    assert cut_middle(REPORT, 40, quarter).startswith(told)
    assert cut_middle("word " * 90, 9, quarter) == "word word […] word"


def test_the_newest_items_stand_before_older_short_ones() -> None:
    shown = newest_cut(["Let me check the log.", REPORT, "Both are fixed now."], [50] * 3, 50, quarter)
    assert (shown[-1], len(shown)) == ("Both are fixed now.", 2)
    assert shown[0].startswith("The review is done. ")


@laws
@given(st.text(st.sampled_from("ab1 .!?\n`/。"), max_size=300), st.integers(0, 60))
def test_a_text_is_never_longer_than_its_room(text: str, room: int) -> None:
    assert quarter(cut_middle(text, room, quarter)) <= room


def test_a_section_that_takes_its_whole_room_is_not_left_out() -> None:
    whole = Section("Words", 1.0, 0, lambda room: ["x" * (room - 1)])
    assert fill([whole], 100, len)


def test_a_text_of_many_short_lines_is_cut_with_few_counts_of_what_is_shown() -> None:
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return text.count("ab") + 2 * text.count("\n", 0, -1)

    assert "[…]" in cut_middle("ab\n" * 5_000, 3_000, count)
    assert sum(map(len, counted)) < 300_000
