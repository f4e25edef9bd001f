"""Digests say in one line what an output was."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextstash.outputs.digest import digest_output
from tests.support.turns import laws

PYTEST = """\
tests/test_x.py F.                                    [100%]
=================================== FAILURES ===================================
    def test_y():
>       assert 1 == 2
E       AssertionError: assert 1 == 2
=========================== short test summary info ============================
FAILED tests/test_x.py::test_y - AssertionError: assert 1 == 2
======================== 2 failed, 41 passed in 3.21s =========================
"""
NUMBERED = "".join(f"{n:6d}→{line}\n" for n, line in enumerate(["class Loans:", "    def lend(self):", ""], 40))
TRACEBACK = "Traceback (most recent call last):\n  File \"x.py\", line 1\n    f()\nKeyError: 'due'\n"
GREP = "src/a.py:3:def lend\nsrc/a.py:9:lend()\nsrc/b.py:1:import lend\n"
FIRST_FAILURE = "tests/test_x.py::test_y AssertionError: assert 1 == 2"
CHUNK = "Chunk ID: 1\nWall time: 0.1 seconds\nProcess exited with code 1\nOutput:\nbad thing\n"
RESET = f"Shell cwd was reset to {' ' * 500_000}x\nok\nShell cwd was reset to /a\n"
GO = "--- FAIL: TestLend (0.00s)\n    lend_test.go:9: no\nFAIL\nFAIL\texample.org/loans\t0.1s\n"


@pytest.mark.parametrize(
    ("tool", "argument", "text", "expected"),
    [
        ("Bash", "pytest", PYTEST, f"tests: 2 failed, 41 passed; first: {FIRST_FAILURE}"),
        ("Bash", "go test ./...", GO, "tests: 1 failed; first: TestLend"),
        ("Bash", "node --test", "1..2\nok 1 adds\nnot ok 2 lends\n", "ok 1 adds … not ok 2 lends (3 lines)"),
        ("Bash", "pytest", "1 failed, 2 passed, 3 subtests passed in 0.1s\n", "tests: 1 failed, 2 passed"),
        ("Read", "loans.py", NUMBERED, "lines 40–42; defines Loans, lend"),
        ("Bash", "python x.py", TRACEBACK, "KeyError: 'due'"),
        ("Bash", "grep -rn lend src", GREP, "3 lines in 2 files: a.py:3, b.py"),
        ("Bash", "go build", "a.go:4:7: undefined: x\n", "a.go:4:7: undefined: x"),
        ("Bash", "grep -rn lend src | head -3", GREP, "the first 3 lines in 2 files: a.py:3, b.py"),
        ("Grep", "lend", f"{GREP}\n\n[Showing results with pagination = limit: 3]",
         "the first 3 lines in 2 files: a.py:3, b.py"),
        ("Bash", "git log", "3f2a9bc Fix fines\n91bb01d Lend\n", "3f2a9bc Fix fines … 91bb01d Lend"),
        ("Bash", "pytest a; pytest b", "2 failed in 1.0s\n3 passed in 1.0s\n", "tests: 2 failed, 3 passed"),
        ("Bash", "./build", f"start\n{'step ' * 9}\nbuilt in 3 s\n", "start … built in 3 s (3 lines)"),
        ("Bash", "true", "no Traceback (most recent call last)", "no Traceback (most recent call last)"),
        ("Bash", "true", "", "no output"),
        ("Bash", "cat x", RESET, "2 lines, begins: Shell cwd was reset to"),
        ("exec_command", "make", "Process running with session ID 7\nOutput:\n", "still running as 7, no output"),
        ("exec_command", "make", "Process running with session ID 7\nOutput:\nx", "still running as 7, so far: x"),
        ("bash", "x", "<returncode>2</returncode>\n<output>\nboom\n</output>", "exit 2: boom"),
        ("exec", "x", CHUNK, "exit 1: bad thing"),
        ("build", "", "checking\nerror: no such option: --fast\nusage: x", "error: error: no such option: --fast"),
    ],
)  # fmt: skip
def test_a_digest_names_what_the_output_was(tool: str, argument: str, text: str, expected: str) -> None:
    assert digest_output(tool, argument, text, tool == "build") == expected


@laws
@given(st.text(), st.text(), st.text() | st.binary().map(lambda raw: raw.decode("latin-1")), st.integers(0, 200))
def test_a_digest_is_one_printable_line_within_its_limit(tool: str, argument: str, text: str, maximum: int) -> None:
    digest = digest_output(tool, argument, text, False, maximum)
    assert len(digest) <= maximum
    assert not any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in digest)
    assert digest == digest_output(tool, argument, text, False, maximum)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "unit", ["a", "\n", "[", "{", "<system-reminder>", "\x1b[", "Traceback (most recent call last)\n", "1 failed, "]
)
def test_a_megabyte_of_one_repeated_text_is_digested(unit: str) -> None:
    assert len(digest_output("Bash", "cat x", unit * (1_000_000 // len(unit)), True)) <= 160
