"""Outcomes of runs: the tests that passed and failed, the error that ended a program, the error lines it printed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from contextstash.safety.sanitize import one_line

MAX_END_CHARACTERS = 60_000
"""How much of each end of an output is searched: it bounds the time. Runners print counts last, and
programs their errors first or last."""


@dataclass(frozen=True, slots=True)
class TestRun:
    """The counts that a test runner printed; `passed` is None if it prints none. `first` is the first failure."""

    failed: int
    passed: int | None
    first: str = ""

    def line(self) -> str:
        """The run in words, such as "2 failed, 41 passed"."""
        counts = f"{self.failed} failed" if self.failed else "all passed"
        if self.passed is not None:
            counts = f"{self.failed} failed, {self.passed} passed" if self.failed else f"{self.passed} passed"
        return f"{counts}; first: {self.first}" if self.first else counts


def ends_of(text: str) -> str:
    """The text; if it is long, its head and its tail."""
    return text if len(text) <= 2 * MAX_END_CHARACTERS else f"{text[:MAX_END_CHARACTERS]}\n{text[-MAX_END_CHARACTERS:]}"


class _Runner(NamedTuple):
    """How a runner's output is read: a `word` that is in all of it (a word is found in a hundredth of the time of a
    regular expression, and most outputs are of no test run), the lines with counts, and the first failure. The last
    line counts, or all of them if it `adds` them up."""

    word: str
    counts: re.Pattern[str]
    first: re.Pattern[str]
    adds: bool = False


_COUNT = re.compile(r"(\d+) (failed|passed|error)|(failures|errors)=(\d+)|Ran (\d+) test")
_RUNNERS = (
    _Runner(  # pytest
        " in ",
        re.compile(
            r"^=* ?((?:\d+ (?:failed|passed|errors?|skipped|deselected|xfailed|xpassed|warnings?|rerun)(?:, )?)+)"
            r" in [\d.]+ ?s",
            re.MULTILINE,
        ),
        re.compile(r"^(?:FAILED|ERROR) (\S[^\n]{0,300})", re.MULTILINE),
    ),
    _Runner(  # cargo: a line for each crate
        "test result: ",
        re.compile(r"^test result: \w+\. (\d+ passed; \d+ failed)", re.MULTILINE),
        re.compile(r"^test (\S{1,200}) \.\.\. FAILED", re.MULTILINE),
        adds=True,
    ),
    _Runner(  # unittest
        "Ran ",
        re.compile(
            r"^(Ran \d+ tests? in [^\n]{0,40}\n{1,3}(?:OK|FAILED)(?: \([^)\n]{1,80}\))?)[ \t\r]*$", re.MULTILINE
        ),
        re.compile(r"^(?:FAIL|ERROR): (\S[^\n]{0,200})", re.MULTILINE),
    ),
    _Runner(  # jest, vitest
        "Tests",
        re.compile(r"^[ \t]*Tests:?[ \t]+(?=\d)([^\n]{0,100}(?:passed|failed)[^\n]{0,100})$", re.MULTILINE),
        re.compile(r"^[ \t]*(?:● |✕ |× |FAIL[ \t]+)(\S[^\n]{0,200})", re.MULTILINE),
    ),
)


def find_test_run(text: str) -> TestRun | None:
    """The run of pytest, unittest, go test, cargo, jest or vitest in an output; None if there is none."""
    text = ends_of(text)
    for runner in _RUNNERS:
        if runner.word in text and (lines := runner.counts.findall(text)):
            failed, passed = _counted(lines if runner.adds else lines[-1:])
            match = runner.first.search(text) if failed else None
            return TestRun(failed, passed, one_line(match[1].replace(" - ", " ", 1), 120) if match else "")
    return _go(text) if "FAIL" in text or "ok " in text or "ok\t" in text else None


def _counted(lines: Sequence[str]) -> tuple[int, int]:
    """How many tests failed and passed by the counts in these lines."""
    failed = passed = ran = 0
    for line in lines:
        for number, word, _, bad, total in _COUNT.findall(line):
            passed += int(number) if word == "passed" else 0
            failed += int(number or 0) * (word != "passed") + int(bad or 0)
            ran += int(total or 0)
    return failed, passed or max(0, ran - failed)


_GO_FAIL = re.compile(r"^[ \t]*--- FAIL: (\S{1,200})", re.MULTILINE)
_GO_PASS = re.compile(r"^[ \t]*--- PASS: ", re.MULTILINE)
_GO_PACKAGE = re.compile(r"^(ok|FAIL)[ \t]+(\S{1,200})", re.MULTILINE)


def _go(text: str) -> TestRun | None:
    """Go prints no counts: the lines of tests and packages are counted."""
    packages, failures = _GO_PACKAGE.findall(text), _GO_FAIL.findall(text)
    failed = failures or [name for word, name in packages if word == "FAIL"]
    if not packages and not failed:
        return None
    return TestRun(len(failed), len(_GO_PASS.findall(text)) or None, failed[0] if failed else "")


_TRACEBACK = re.compile(r"^[ \t]*Traceback \(most recent call last\)", re.MULTILINE)
_PYTHON_ERROR = re.compile(
    r"^(?:E[ \t]+)?([A-Za-z_][\w.]{0,80}(?:Error|Exception|Warning|Interrupt|Exit|DoesNotExist)"
    r"\b[^\n]{0,300})",
    re.MULTILINE,
)
_PANIC = re.compile(r"^(panic: [^\n]{1,300}|thread '[^'\n]{1,80}' (?:\(\d+\) )?panicked at [^\n]{1,200})", re.MULTILINE)
_STACK = re.compile(r"^((?:Uncaught )?[A-Z]\w{0,60}(?:Error|Exception)\b: [^\n]{1,300})\n[ \t]+at ", re.MULTILINE)


def find_crash(text: str) -> str:
    """The line with the error that ended a program (Python, Go, Rust, JavaScript, Java); empty if there is none."""
    text = ends_of(text)
    traces = list(_TRACEBACK.finditer(text)) if "Traceback (most recent" in text else []
    if traces:
        rest = text[traces[-1].end() :]
        error = _PYTHON_ERROR.search(rest)
        plain = [line for line in rest.split("\n")[1:] if line.strip() and not line[0].isspace()]
        line = error.group(1) if error else plain[0] if plain else ""
        return one_line(line, 300)
    for word, pattern in (("panic", _PANIC), ("at ", _STACK)):
        match = pattern.search(text) if word in text else None
        if match:
            return one_line(match.group(1), 300)
    return ""
