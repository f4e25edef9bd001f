"""What is found from the line break before it is the same as what is found at the start of a line."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from contextstash.outputs import classifiers
from contextstash.outputs.classifiers import DEFINITION
from contextstash.outputs.run_outcomes import _PYTEST, _PYTEST_END
from tests.support.effort import examples

WORDS = st.sampled_from(
    [
        "def run",
        "class A",
        "  12\t",
        "12: ",
        "function* go",
        "\n",
        "\n\n",
        " ",
        "src/a.py:12:",
        "abc1234 subject",
        "* |",
        "func (r *T) Name",
        "3 passed in 0.2s",
        "== 1 failed, 2 passed in 3 s ==",
        " in 4s",
        "no",
        "type",
        ":7-",
        "\r\n",
    ]
)
TEXTS = st.lists(WORDS | st.text(max_size=3), max_size=25).map("".join)

SHORT_COMMIT = re.compile(r"^(?:[*|\\/ ]* )?([0-9a-f]{7,12}) (\S[^\n]{0,200})$", re.MULTILINE)


@settings(max_examples=examples(300), deadline=None)
@given(TEXTS)
def test_definitions_and_line_numbers(text: str) -> None:
    after_break = f"\n{text}"
    assert classifiers._DEFINITION_AFTER_BREAK.findall(after_break) == DEFINITION.findall(text)
    assert classifiers._NUMBERED_AFTER_BREAK.findall(after_break) == classifiers._NUMBERED.findall(text)


@settings(max_examples=examples(300), deadline=None)
@given(TEXTS)
def test_commits(text: str) -> None:
    assert classifiers._SHORT_COMMIT.findall(f"\n{text}") == SHORT_COMMIT.findall(text)


@settings(max_examples=examples(300), deadline=None)
@given(TEXTS)
def test_what_is_asked_first_is_in_all_that_matches(text: str) -> None:
    assert len(classifiers._GREP_NUMBER.findall(text)) >= len(classifiers._GREP_LINE.findall(text))
    assert _PYTEST_END.search(text) or not _PYTEST.findall(text)
