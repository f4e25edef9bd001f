"""The page on security names the tests that hold its promises: each of them is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")


def test_each_test_that_the_page_names_is_there() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE)
    assert len(named) > 15
    for file, function in named:
        text = (ROOT / file).read_text(encoding="utf-8")
        assert not function or re.search(rf"^(?:async )?def {function}\(", text, re.MULTILINE), f"{file}::{function}"


def test_each_threat_names_a_test() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| **")]
    assert len(rows) >= 9
    assert [row for row in rows if "tests/" not in row] == []
