"""A summary is read back as it was written, so that the next one can continue it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from contextstash.context.extraction.summary_format import Section, merged, read_summary, write_summary
from tests.support.turns import laws

line = st.text(st.sampled_from("ab #-*`:.漢"), min_size=1, max_size=20).map(str.strip).filter(bool)
item = st.lists(line, min_size=1, max_size=4).map("\n".join)
sections = st.dictionaries(st.sampled_from(Section), st.lists(item, min_size=1, max_size=4))


@laws
@given(sections)
def test_a_written_summary_is_read_back(written: dict[Section, list[str]]) -> None:
    assert read_summary(write_summary(written)) == written


def test_a_text_without_these_headings_is_an_earlier_summary() -> None:
    assert read_summary("# Done\n- parser\n\n# Next\n- docs") == {
        Section.EARLIER: ["# Done\n- parser\n\n# Next\n- docs"]
    }


def test_text_under_other_headings_is_kept_as_an_earlier_summary() -> None:
    assert read_summary("## Task\n- Fix it.\n\n## Thoughts\nHard.") == {
        Section.TASK: ["Fix it."],
        Section.EARLIER: ["## Thoughts\nHard."],
    }


def test_two_summaries_in_one_text_are_joined_section_by_section() -> None:
    both = "## Task\n- One.\n\n## Errors\n- e\n\n## Task\n- Two."
    assert read_summary(both) == {Section.TASK: ["One.", "Two."], Section.ERRORS: ["e"]}


def test_merging_keeps_an_item_once_in_its_newer_place() -> None:
    assert merged(["Keep JSON.", "No schema change."], ["keep json", "Use tabs."]) == [
        "No schema change.",
        "keep json",
        "Use tabs.",
    ]
