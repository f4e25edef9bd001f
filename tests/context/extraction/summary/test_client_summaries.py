"""What a client's summary keeps when it is shortened, and when the work went on after it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextstash.context.extraction.summary.client_state import without_state
from contextstash.context.extraction.summary.extractive_summary import extract_summary
from contextstash.context.extraction.summary.headed_text import cut_at_headings
from contextstash.context.extraction.summary.section_budget import cut_middle
from tests.support.turns import Script, laws, quarter

OPENING = "This session is being continued from a previous conversation that ran out of context."
STEPS = "".join(f"   - Step {number} of the port changed the module of that number\n" for number in range(30))
CODE = "   - `fines.py`\n     ```python\n     def charge():\n\n         return 1\n     ```\n     - Called once a day\n"
TOLD = (
    f"{OPENING}\n\n1. Primary Request and Intent:\n   Charge fines once.\n\n3. Files:\n\n{CODE}\n{STEPS}\n"
    "4. Errors and fixes:\n   - A wrong import: removed\n\n8. Current Work:\n   The build failed in `loans.py`.\n\n"
    "   Just changed the call. The two errors that are left are in `close_day`.\n"
)


def headings_of(text: str) -> dict[str, str]:
    """The heading of each line."""
    found, heading = dict[str, str](), ""
    for line in text.split("\n"):
        heading = line if line[:1].isdigit() else heading
        found[line.strip()] = heading
    return found


@laws
@given(st.integers(min_value=1, max_value=700))
def test_no_line_of_a_shortened_summary_stands_without_its_heading(most: int) -> None:
    text = cut_at_headings(TOLD, most, quarter, cut_middle)
    told = headings_of(TOLD)
    assert quarter(text) <= most
    assert text.count("```") % 2 == 0
    if most > 60:
        shown = {line: heading for line, heading in headings_of(text).items() if line not in ("", "[…]")}
        assert {line: told[line] for line in shown} == shown


def test_of_a_long_list_whole_entries_stay_below_what_introduces_them() -> None:
    entries = "".join(f"  - entry {number} is done\n" for number in range(50))
    text = cut_at_headings(f"## Files\n- loans.py:\n{entries}", 60, quarter, cut_middle)
    assert text.startswith("## Files\n- loans.py:\n  - entry 0 is done\n  - entry 1 is done")
    assert text.endswith("\n\n[…]\n\n  - entry 48 is done\n  - entry 49 is done")


def test_the_mark_for_a_section_that_was_left_out_needs_no_heading() -> None:
    told = without_state(f"1. Request:\n   Charge once.\n\n2. Notes:\n   {'Use tabs. ' * 30}\n\n3. Pending:\n   Commit")
    assert cut_at_headings(told, 40, quarter, cut_middle) == (
        "1. Request:\n   Charge once.\n\n[…]\n\n[left out: what was pending and next when this was written]"
    )


def test_a_single_long_paragraph_is_shortened() -> None:
    text = cut_at_headings("The parser reads each date once more. " * 50, 40, quarter, cut_middle)
    assert text.startswith("The parser")
    assert " […] " in text


def test_the_end_of_a_section_that_is_out_of_date_does_not_stay_without_its_heading() -> None:
    script = Script().user(TOLD)
    first = extract_summary(script.turns, max_tokens=400, count=quarter)
    later = Script().user("Go on.").call("Bash", {"command": "make"}, "ok")
    text = extract_summary(later.turns, previous=first, max_tokens=900, count=quarter)
    assert "Charge fines once." in text
    assert "errors that are left" not in text
    assert text.count("```") % 2 == 0


def test_what_follows_a_cut_in_an_earlier_summary_leaves_up_to_the_next_heading() -> None:
    cut = (
        "1. Request:\n   Charge once.\n\n3. Files:\n   - fines.py\n   ```go […] Go on with the errors.\n\n   As said.\n"
    )
    assert without_state(f"{cut}\n4. Errors:\n   - An import") == (
        "1. Request:\n   Charge once.\n\n3. Files:\n   - fines.py\n[…]\n\n4. Errors:\n   - An import"
    )


def test_the_parts_of_a_section_that_is_out_of_date_leave_with_it() -> None:
    told = "# Port\n\n## Pending\n\n### Tests\n- Write them\n\n**The docs**\n- Update them\n\n## Decisions\n- Use tabs"
    text = without_state(told)
    assert "Write them" not in text
    assert "Update them" not in text
    assert text.endswith("## Decisions\n- Use tabs")


@pytest.mark.parametrize(
    "stale",
    [
        "- **Current Error**: `a_test.go:3 undefined: Parse`\n     - The compiler does not know it",
        "User's most recent request is to “fill the prompt”",
        "- Need to investigate why the compiler cannot find it",
        "- Currently working through the errors",
        "Currently failing:\n   - the test of the parser",
        "The build is currently failing in CI.",
        "**Current issue:**\n   ```\n   undefined: Parse\n   ```",
    ],
)
def test_a_statement_on_the_moment_of_writing_leaves_once_the_work_went_on(stale: str) -> None:
    before, after = "4. Errors and fixes:\n   - A wrong import: removed\n\n", "5. Tests:\n   None."
    assert without_state(f"{before}   {stale}\n\n{after}").split() == f"{before}{after}".split()


@pytest.mark.parametrize(
    "line",
    [
        '   - "currently the fines are charged twice, fix that"',
        "   - The current error handling wraps each error",
        "   - The cache keeps the latest request for each user",
        "   - Callers need to check whether the loan is open",
    ],
)
def test_what_is_true_later_and_the_words_of_the_user_stay(line: str) -> None:
    told = f"4. Notes:\n{line}\n\n6. All user messages:\n   - Currently it fails. Mend it."
    assert without_state(told) == told


def test_a_line_stays_up_to_its_first_statement_on_the_moment_of_writing() -> None:
    told = "5. Solving:\n   The panic is gone. Need to continue with the callers. They fail."
    assert without_state(told) == "5. Solving:\n   The panic is gone."


def test_a_heading_of_the_error_at_that_moment_leaves_with_its_section() -> None:
    text = without_state("## Done\n- The parser\n\n### Current Error\nThe import fails.\n\n## Notes\n- Use tabs")
    assert "The import fails." not in text
    assert text.endswith("## Notes\n- Use tabs")
