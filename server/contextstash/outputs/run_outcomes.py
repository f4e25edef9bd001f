"""Outcomes of runs: the tests that passed and failed, the error that ended a program, the error lines it printed."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

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


_PYTEST_END = re.compile(r" in [\d.]+ ?s")
"""The end of what `_PYTEST` matches. It begins with plain characters, which are found much faster than a line."""

_PYTEST = re.compile(
    r"^=* ?((?:\d+ (?:failed|passed|errors?|skipped|deselected|xfailed|xpassed|warnings?|rerun)(?:, )?)+)"
    r" in [\d.]+ ?s",
    re.MULTILINE,
)
_PYTEST_FIRST = re.compile(r"^(?:FAILED|ERROR) (\S[^\n]{0,300})", re.MULTILINE)
_UNITTEST = re.compile(r"^Ran (\d+) tests? in ", re.MULTILINE)
_UNITTEST_END = re.compile(r"^(OK|FAILED)(?: \(([^)\n]{1,80})\))?[ \t\r]*$", re.MULTILINE)
_UNITTEST_FIRST = re.compile(r"^(?:FAIL|ERROR): (\S[^\n]{0,200})", re.MULTILINE)
_CARGO = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed", re.MULTILINE)
_CARGO_FIRST = re.compile(r"^test (\S{1,200}) \.\.\. FAILED", re.MULTILINE)
_JEST = re.compile(r"^[ \t]*Tests:?[ \t]+(?=[\d])([^\n]{1,120})$", re.MULTILINE)
_JEST_FIRST = re.compile(r"^[ \t]*(?:● |✕ |× |FAIL[ \t]+)(\S[^\n]{0,200})", re.MULTILINE)
_GO_FAIL = re.compile(r"^[ \t]*--- FAIL: (\S{1,200})", re.MULTILINE)
_GO_PASS = re.compile(r"^[ \t]*--- PASS: ", re.MULTILINE)
_GO_PACKAGE = re.compile(r"^(ok|FAIL)[ \t]+(\S{1,200})", re.MULTILINE)
_COUNT = re.compile(r"(\d+) (failed|passed|error)")


def has_any(text: str, words: Sequence[str]) -> bool:
    """Whether the text contains one of the words. A loop: it is asked of each output, and `any` takes twice as long."""
    for word in words:  # noqa: SIM110
        if word in text:
            return True
    return False


def find_test_run(text: str) -> TestRun | None:
    """The run of pytest, unittest, go test, cargo, jest or vitest in an output; None if there is none."""
    text = ends_of(text)
    for words, reader in _READERS:
        run = reader(text) if has_any(text, words) else None
        if run:
            return run
    return None


def _first(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return one_line(match.group(1), 120) if match else ""


def _run(failed: int, passed: int, failure: re.Pattern[str], text: str) -> TestRun:
    """A run with these counts, whose first failure the pattern finds."""
    return TestRun(failed, passed, _first(failure, text) if failed else "")


def _counted(line: str) -> tuple[int, int]:
    counts = {"failed": 0, "passed": 0, "error": 0}
    for number, word in _COUNT.findall(line):
        counts[word] += int(number)
    return counts["failed"] + counts["error"], counts["passed"]


def _pytest(text: str) -> TestRun | None:
    found = _PYTEST.findall(text) if _PYTEST_END.search(text) else []
    if not found:
        return None
    run = _run(*_counted(found[-1]), _PYTEST_FIRST, text)
    return replace(run, first=run.first.replace(" - ", " ", 1))


_GO_SAID = re.compile(
    r"^[ \t]*(?:(?<=[ \t])(?=\w[\w.-]*\.go:\d+: )|(?=\S+:\d+:\d+: ))(\S{1,160}: \S[^\n]{0,160})", re.MULTILINE
)
"""What a failed test of Go logs, or what its compiler says."""


def _go(text: str) -> TestRun | None:
    packages = _GO_PACKAGE.findall(text)
    failures = _GO_FAIL.findall(text)
    if not packages and not failures:
        return None
    failed_packages = [name for word, name in packages if word == "FAIL"]
    passed = len(_GO_PASS.findall(text))
    if failures or failed_packages:
        first = failures[0] if failures else failed_packages[0]
        reason = _go_reason(text, failures[0]) if failures else _GO_SAID.findall(text)[:1]
        count = len(failures) or len(failed_packages)
        return TestRun(count, passed or None, one_line(": ".join([first, *reason]), 200))
    return TestRun(0, passed or None)


def _go_reason(text: str, test: str) -> list[str]:
    """Why a test failed: the last line that its own file logged, else the last line."""
    run, failed = text.find(f"=== RUN   {test}\n"), text.find(f"--- FAIL: {test}")
    block = text[run if run >= 0 else failed : failed] + re.split(r"\n(?=\S)", text[failed:], maxsplit=1)[0]
    said = _GO_SAID.findall(block) or _GO_SAID.findall(text[:failed])
    return ([line for line in said if "_test.go:" in line] or said)[-1:]


def _cargo(text: str) -> TestRun | None:
    found = _CARGO.findall(text)
    if not found:
        return None
    passed, failed = (sum(map(int, numbers)) for numbers in zip(*found, strict=True))
    return _run(failed, passed, _CARGO_FIRST, text)


def _unittest(text: str) -> TestRun | None:
    ran, end = _UNITTEST.search(text), _UNITTEST_END.search(text)
    if not ran or not end:
        return None
    total = int(ran.group(1))
    bad = re.findall(r"(?:failures|errors)=(\d+)", end.group(2) or "")
    failed = sum(map(int, bad)) if end.group(1) == "FAILED" else 0
    return _run(failed, max(0, total - failed), _UNITTEST_FIRST, text)


def _jest(text: str) -> TestRun | None:
    found = _JEST.findall(text)
    if not found or ("passed" not in found[-1] and "failed" not in found[-1]):
        return None
    return _run(*_counted(found[-1]), _JEST_FIRST, text)


_READERS: tuple[tuple[tuple[str, ...], Callable[[str], TestRun | None]], ...] = (
    ((" in ",), _pytest),
    (("FAIL", "ok ", "ok\t"), _go),
    (("test result: ",), _cargo),
    (("Ran ",), _unittest),
    (("Tests",), _jest),
)
"""Each with words of which one is in everything that it matches: to find a word takes a hundredth of the time of a
regular expression, and most outputs are of no test run."""

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
