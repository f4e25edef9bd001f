"""The one line that identifies a tool call."""

from __future__ import annotations

import pytest

from contextstash.messages.main_argument import main_argument


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"limit": 5, "file_path": "src/a.py", "command": "ls"}, "src/a.py"),
        ({"description": "List files", "command": "ls -l"}, "ls -l"),
        ({"pattern": "def .*", "glob": "*.py"}, "def .*"),
        ({"cmd": ["bash", "-lc", "make  test"]}, "make test"),
        ({"command": ["git", "status"]}, "git status"),
        ({"n": 3, "reservation": "H8Q05L"}, "H8Q05L"),
        ({"n": 3, "text": "x" * 500}, None),
        ({"command": "cat <<E\nhello\nE"}, "cat <<E hello E"),
        ('{"query": "why"}', "why"),
        ('{"query": "cut o', '{"query": "cut o'),
        ("*** Begin Patch\n*** Update File: src/b.py\n@@\n", "src/b.py"),
        ("print(1)\nprint(2)", "print(1) print(2)"),
        ({}, None),
        ("", None),
        (None, None),
        ([1, 2], None),
    ],
)
def test_the_main_argument_is_found(arguments: object, line: str | None) -> None:
    assert main_argument(arguments) == line


def test_it_is_cut_to_120_characters() -> None:
    line = main_argument({"command": "echo " + "x" * 500})
    assert line is not None
    assert len(line) == 120
    assert line.endswith("…")
