"""Failed attempts: what was tried and did not help is told, with the reason, through every compaction."""

from __future__ import annotations

import pytest

from contextstash.context.extraction.summary.extractive_summary import extract_summary
from contextstash.context.extraction.summary_format import Section, read_summary
from tests.support.turns import Script, quarter

FAILED = "FAILED tests/test_fines.py::test_once - assert 2 == 1\n1 failed, 3 passed in 0.1s"
PASSED = "tests/test_fines.py::test_once PASSED\n4 passed in 0.1s"


def edit(script: Script, path: str) -> Script:
    return script.call("Edit", {"file_path": path, "old_string": "a", "new_string": "b"}, "done")


def tried(script: Script, previous: str | None = None) -> list[str]:
    text = extract_summary(script.turns, previous=previous, max_tokens=1_500, count=quarter)
    return list(read_summary(text).get(Section.TRIED, ()))


def test_a_change_after_which_the_tests_still_failed_is_a_failed_attempt() -> None:
    script = Script().user("Fix it.").call("Bash", {"command": "pytest -q"}, FAILED, is_error=True)
    edit(script, "/srv/fines.py").call("Bash", {"command": "pytest -q"}, FAILED, is_error=True)
    [line] = tried(script)
    assert line.startswith("(6) changed `fines.py`; then `pytest -q` still failed: ")
    assert "test_once" in line


def test_a_first_failure_and_a_mended_one_are_no_failed_attempts() -> None:
    script = Script().user("Fix it.").call("Bash", {"command": "pytest -q"}, FAILED, is_error=True)
    edit(script, "/srv/fines.py").call("Bash", {"command": "pytest -q"}, PASSED)
    assert tried(script) == []


def test_what_the_agent_says_that_it_gave_up_is_a_failed_attempt() -> None:
    script = Script().user("Fix it.").assistant("Setting `GOFLAGS=-mod=mod` did not help, because hooks run elsewhere.")
    assert tried(script) == ["(1) Setting `GOFLAGS=-mod=mod` did not help, because hooks run elsewhere."]


@pytest.mark.parametrize(
    "said",
    [
        "Run the same command again; if it still fails, the new error shows the first bytes of the answer.",
        "The issue is that the reloader doesn't work when the folder is the root.",
        "Reverted the change of the lock file: removed the dead `StageFiles()` from the store ✓",
        "For combined queries, this doesn't work because the clause is not used.",
    ],
)
def test_a_defect_or_what_could_happen_is_no_failed_attempt(said: str) -> None:
    assert tried(Script().user("Fix it.").assistant(said)) == []


def test_an_approach_that_does_not_work_is_a_failed_attempt() -> None:
    said = "The approach with `GOFLAGS` does not work, because hooks run elsewhere."
    assert tried(Script().user("Fix it.").assistant(said)) == [f"(1) {said}"]


def test_failed_attempts_stay_through_ten_summaries() -> None:
    previous = None
    expected: list[str] = []
    for number in range(10):
        script = Script().user("Go on.").assistant(f"Raising `limit_{number}` did not help, because of the lock.")
        previous = extract_summary(script.turns, previous=previous, max_tokens=1_500, count=quarter)
        expected.append(f"(1) Raising `limit_{number}` did not help, because of the lock.")
    assert read_summary(previous or "")[Section.TRIED] == expected


def test_an_error_leaves_when_another_command_shows_that_its_test_passes() -> None:
    script = Script().user("Fix it.").call("Bash", {"command": "pytest tests/test_fines.py"}, FAILED, is_error=True)
    edit(script, "/srv/fines.py").call("Bash", {"command": "make check"}, PASSED)
    text = extract_summary(script.turns, max_tokens=1_000, count=quarter)
    assert not any(line.startswith("failed") for line in read_summary(text).get(Section.ERRORS, ()))
