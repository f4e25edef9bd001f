"""Sentences of prose, and what stays of a request that is too long to be shown whole."""

from __future__ import annotations

import pytest

from contextstash.events.sentences import sentences, shortened
from tests.support.turns import quarter


@pytest.mark.timeout(20)
@pytest.mark.parametrize("unit", ["**a ", "__a ", "- ", "`", "**", "[x] "])
def test_a_long_line_of_marks_is_split(unit: str) -> None:
    assert isinstance(sentences(unit * 20_000), list)


COMMAND = "echo COMPLETE_TASK && cat patch.txt"
REQUEST = "\n\n".join(
    [
        "Fix the report of the monthly fines.",
        "Let us pretend that we have these models:\n\n```python\n" + "class Fine(Model): pass\n" * 20 + "```",
        *(f"You must not change the tests of part {number} of the report, nor its settings." for number in range(12)),
        f"You MUST use this EXACT command to submit:\n\n```bash\n{COMMAND}\n```",
        "You must not combine it with other commands.",
    ]
)


@pytest.mark.parametrize("share", [2, 4, 8])
def test_a_command_that_is_to_be_used_exactly_stays_whole(share: int) -> None:
    shown = shortened(REQUEST, quarter(REQUEST) // share, quarter, {"You must not change the tests"}, "message 1")
    assert f"EXACT command to submit:\n\n```bash\n{COMMAND}\n```" in shown
    assert shown.startswith("Fix the report of the monthly fines.")
    assert "class Fine" not in shown


def test_a_long_text_that_an_instruction_gives_leaves_like_any_other_pasted_text() -> None:
    log = "\n".join(f"{number} ERROR code={number}" for number in range(60))
    request = f"Use the following log:\n```\n{log}\n```\n\nWhat does it show of the fines of last month, please?"
    assert "ERROR" not in shortened(request, 60, quarter, (), "message 1")
