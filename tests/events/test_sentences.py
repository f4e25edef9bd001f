"""Sentences of prose, without marks; names in code keep theirs."""

from __future__ import annotations

import pytest

from contextstash.events.sentences import sentences


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (
            "It uses `klass.__name__`, not `klass.__qualname__`.",
            ["It uses `klass.__name__`, not `klass.__qualname__`."],
        ),
        ("**Root cause:** the `**kwargs` are lost.", ["Root cause: the `**kwargs` are lost."]),
        ("__Two words__ and __main__ and **kwargs", ["Two words and __main__ and **kwargs"]),
        ("2**3**4 is large", ["2**3**4 is large"]),
        ("- [x] Done **all** of it. Now `a**b`.", ["Done all of it.", "Now `a**b`."]),
        ("## Result\nIt works.", ["Result", "It works."]),
        ("`★ Insight ─────`\nIt works.\n`─────────`\n---", ["It works."]),
    ],
)
def test_marks_of_prose_go_and_those_of_names_stay(line: str, found: list[str]) -> None:
    assert sentences(line) == found


@pytest.mark.timeout(20)
@pytest.mark.parametrize("unit", ["**a ", "__a ", "- ", "`", "**", "[x] "])
def test_a_long_line_of_marks_is_split(unit: str) -> None:
    assert isinstance(sentences(unit * 20_000), list)
