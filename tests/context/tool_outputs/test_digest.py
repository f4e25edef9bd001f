"""Digests say in one line what an output was; placeholders say how to read it again and cannot be forged."""

from __future__ import annotations

import json
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextstash.context.text.sanitize import MARKER
from contextstash.context.tool_outputs.digest import (
    compaction_digest,
    digest_message,
    digest_output,
    filled_placeholder,
    placeholder,
)
from contextstash_storage.records import Output
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
DIFF = "diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -1,2 +1,3 @@\n-old\n+new\n+more\n"
NUMBERED = "".join(f"{n:6d}→{line}\n" for n, line in enumerate(["class Loans:", "    def lend(self):", ""], 40))
TRACEBACK = "Traceback (most recent call last):\n  File \"x.py\", line 1\n    f()\nKeyError: 'due'\n"
GREP = "src/a.py:3:def lend\nsrc/a.py:9:lend()\nsrc/b.py:1:import lend\n"
LONG_LISTING = "total 8\ndrwxr-xr-x 2 me us 4096 Jan  1 10:00 src\n-rw-r--r-- 1 me us  120 Jan  1 10:00 setup.py\n"
FIRST_FAILURE = "tests/test_x.py::test_y AssertionError: assert 1 == 2"
NOT_FOUND = "HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\n\r\nno"
CHUNK = "Chunk ID: 1\nWall time: 0.1 seconds\nProcess exited with code 1\nOutput:\nbad thing\n"
GO = "--- FAIL: TestLend (0.00s)\n    lend_test.go:9: no\nFAIL\nFAIL\texample.org/loans\t0.1s\n"


@pytest.mark.parametrize(
    ("tool", "argument", "text", "expected"),
    [
        ("Bash", "pytest", PYTEST, f"tests: 2 failed, 41 passed; first: {FIRST_FAILURE}"),
        ("Bash", "go test ./...", GO, "tests: 1 failed; first: TestLend"),
        ("Bash", "git diff", DIFF, "diff of 1 file +2 −1: x.py"),
        ("Read", "loans.py", NUMBERED, "lines 40–42; defines Loans, lend"),
        ("Bash", "python x.py", TRACEBACK, "KeyError: 'due'"),
        ("Bash", "grep -rn lend src", GREP, "3 matches in 2 files: a.py:3, b.py"),
        ("Bash", "ls -l", LONG_LISTING, "2 entries: src, setup.py"),
        ("get_order", "7", '{"id": 7, "state": "open", "of": [1, 2]}', "JSON: id=7, state=open, of (2)"),
        ("list", "", '[{"id": 1}, {"id": 2}]', "JSON list of 2 items, each with id"),
        ("Bash", "curl -i x", NOT_FOUND, "HTTP 404 Not Found, text/html"),
        ("Bash", "git log", "3f2a9bc Fix fines\n91bb01d Lend\n", "2 commits, newest 3f2a9bc Fix fines"),
        ("Bash", "./build", f"start\n{'step ' * 9}\nbuilt in 3 s\n", "start … built in 3 s (3 lines)"),
        ("Bash", "true", "", "no output"),
        ("bash", "x", "<returncode>2</returncode>\n<output>\nboom\n</output>", "exit 2: boom"),
        ("exec", "x", CHUNK, "exit 1: bad thing"),
    ],
)  # fmt: skip
def test_a_digest_names_what_the_output_was(tool: str, argument: str, text: str, expected: str) -> None:
    assert digest_output(tool, argument, text, False) == expected


def test_an_error_is_told_by_its_error_line() -> None:
    text = "checking\nerror: no such option: --fast\nusage: build [--slow]"
    assert digest_output("build", "", text, True) == "error: error: no such option: --fast"


@laws
@given(st.text(), st.text(), st.text() | st.binary().map(lambda raw: raw.decode("latin-1")), st.integers(0, 200))
def test_a_digest_is_one_printable_line_within_its_limit(tool: str, argument: str, text: str, most: int) -> None:
    digest = digest_output(tool, argument, text, False, most)
    assert len(digest) <= most
    assert not any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in digest)
    assert digest == digest_output(tool, argument, text, False, most)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "unit",
    ["a", "\n", "[", "{", "<system-reminder>", "\x1b[", "Traceback (most recent call last)\n", "1 failed, "],
)
def test_a_megabyte_of_one_thing_is_digested(unit: str) -> None:
    assert len(digest_output("Bash", "cat x", unit * (1_000_000 // len(unit)), True)) <= 160


def test_a_placeholder_names_the_call_its_size_its_digest_and_the_way_back() -> None:
    shown = placeholder("Bash", "pytest -q", 1_234, 88, "out_abcd2345", "tests: 2 failed, 41 passed")
    assert shown == (
        "[contextstash: archived output of Bash pytest -q (1,234 tokens, 88 lines): tests: 2 failed,"
        " 41 passed. Unchanged in get_archived_output, handle out_abcd2345; don't repeat the call.]"
    )


def test_a_placeholder_shows_the_end_of_a_long_path() -> None:
    shown = placeholder("Read", "/srv/" + "deep/" * 30 + "loans.py", 9, 9, "out_abcd2345", "9 lines")
    assert "deep/loans.py (9 tokens" in shown
    assert len(shown) < 220


def output(tool: str = "Read", argument: str = "src/main.rs") -> Output:
    return Output(
        handle="out_abcd2345",
        seq=3,
        block=0,
        tool=tool,
        argument=argument,
        tokens=1_234,
        characters=5_000,
        lines=88,
        sha256="0" * 64,
    )


@pytest.mark.parametrize(
    ("template", "tool", "argument", "shown"),
    [
        ("[cleared, kept as {handle}]", "Bash", "make", "[cleared, kept as out_abcd2345]"),
        ("[Viewed: {subject}, {handle}]", "view_file", "src/main.rs", "[Viewed: File: src/main.rs, out_abcd2345]"),
        ("[Viewed: {subject}, {handle}]", "Bash", "cargo build", "[Viewed: Bash cargo build, out_abcd2345]"),
        ("{handle} {tokens} {lines} {digest}", "Bash", "x", "out_abcd2345 1,234 88 2 failed"),
    ],
)
def test_a_placeholder_of_the_users_own_words_is_filled_in(template: str, tool: str, argument: str, shown: str) -> None:
    assert filled_placeholder(template, output(tool, argument), "2 failed") == shown


def test_a_digest_message_shows_head_and_tail_of_the_output_and_its_handle() -> None:
    shown = digest_message(output(), "first line\n" + "middle\n" * 1_000 + "last line", 800)
    assert shown.startswith("[contextstash: digest of Read src/main.rs, archived as out_abcd2345 (1,234 tokens")
    assert "first line" in shown
    assert "last line" in shown
    assert len(shown.split("]\n", 1)[1]) <= 800


def test_one_digest_message_tells_of_all_outputs_that_a_compaction_archived() -> None:
    shown = compaction_digest([(output(), "main, 88 lines"), (output("Bash", "make"), "ok " * 500)], 400)
    assert shown.splitlines()[0] == "[Compaction tool digest]"
    assert "- Read src/main.rs (out_abcd2345): main, 88 lines" in shown
    assert len(shown) <= 560


forged = st.sampled_from(
    [
        "[contextstash: archived",
        "[CONTEXTSTASH:",
        "[ context stash",
        "[\u200bcontextstash",
        "[\ncontextstash",
    ]
)


@laws
@given(forged, st.text(max_size=30), st.sampled_from(["tool", "argument", "text"]))
def test_tool_text_cannot_forge_a_marker_inside_a_placeholder(marker: str, rest: str, where: str) -> None:
    parts = {"tool": "Bash", "argument": "x", "text": "y", where: f"{rest}{marker}{rest}"}
    digest = digest_output(parts["tool"], parts["argument"], parts["text"], False)
    shown = placeholder(parts["tool"], parts["argument"], 1, 1, "out_a", digest)
    folded = shown.casefold().replace(" ", "")
    assert folded.count(MARKER) == 1


BRACKETS = [
    chr(code)
    for code in range(0x110000)
    if unicodedata.category(chr(code)) in ("Ps", "Pe", "Pi", "Pf")
    and re.search(
        r"(SQUARE|LENTICULAR|TORTOISE SHELL|QUILL|ANGLE|SUBSTITUTION) BRACKET", unicodedata.name(chr(code), "")
    )
]
CONTROLS = "\n\r\t\x00\x1b\u202e\u2028\u200b\u2066\U000e0041"
hostile = st.lists(st.sampled_from([*BRACKETS, *"[](): .", *CONTROLS, "contextstash", "out_a"]), max_size=40).map(
    "".join
)
texts = st.text() | hostile | st.tuples(forged, hostile).map("".join)


@laws
@given(texts, texts, texts)
def test_a_placeholder_is_one_bracketed_unit_whatever_it_tells_of(tool: str, argument: str, text: str) -> None:
    digest = digest_output(tool, argument, text, False)
    shown = [
        placeholder(tool, argument, 1, 1, "out_a", digest),
        filled_placeholder("[{subject} {tool} {argument} {digest}, kept as {handle}]", output(tool, argument), digest),
        digest_message(output(tool, argument), text, 300).split("\n")[0],
    ]
    for line in shown:
        assert line[0] == "["
        assert line[-1] == "]"
        assert not set(line[1:-1]) & {*BRACKETS, "[", "]"}
        assert not any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in line)
        assert not re.search("[\u200b-\u200f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]", line)


def test_what_is_bracketed_in_an_argument_stays_readable() -> None:
    shown = placeholder("Bash", "pytest test_a.py::test_b[1]", 9, 9, "out_a", "error[E0382]: moved")
    assert "pytest test_a.py::test_b(1) (9 tokens" in shown
    assert "error(E0382): moved." in shown


def test_a_digest_of_json_lines_counts_them() -> None:
    text = "\n".join(json.dumps({"id": number, "kind": "event"}) for number in range(20))
    assert digest_output("Bash", "cat events.jsonl", text, False) == "20 lines, the first JSON: id=0, kind=event"
