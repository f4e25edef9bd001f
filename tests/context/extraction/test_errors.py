"""Which errors still stand: they are matched by command and by test, and leave when they pass."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from contextstash.context.extraction.actions import actions_of
from contextstash.context.extraction.attempts import failed_attempts, joined_attempts
from contextstash.context.extraction.errors import failures
from contextstash.context.extraction.files.session_files import changes_by_message
from contextstash.context.extraction.summary.extractive_summary import extract_summary
from contextstash.context.extraction.summary_format import Section, read_summary
from tests.support.turns import Script, quarter

GO_FAILED = (
    "--- FAIL: TestPrune (0.00s)\n    sync_test.go:76: expected block, got skip\nFAIL\nFAIL\texample.org/sync\t0.1s"
)
GO_PASSED = "ok  \texample.org/sync\t0.3s"


def run(script: Script, command: str, output: str, *, failed: bool = False) -> Script:
    return script.call("Bash", {"command": command}, output, is_error=failed)


def open_errors(script: Script) -> list[str]:
    actions = actions_of(script.turns)
    return [failure.label for failure in failures(actions, changes_by_message(actions))]


@pytest.mark.parametrize(
    ("failing", "passing", "stands"),
    [
        ("go test ./...", "go test ./...", False),
        ("go test ./sync", "go test ./...", False),
        ("go test ./sync -run Integration -v", "go test ./sync", False),
        ("go test ./...", "go test ./... -run TestOther", True),
        ("go test ./...", "go test ./sync -run TestPrune", False),
        ("env GOCACHE=/tmp/x go test ./sync -run TestPrune", "go test ./...", False),
        ("go test -tags=integration ./...", "go test ./...", True),
        ("go test ./other", "go vet ./...", True),
        ("mise run fmt && go test ./...", "go test ./...", False),
        ("go test ./sync -run TestOther", "mise run test", False),
        ("go test -tags=integration ./...", "make test", True),
        ("# All of it.\ncd /srv\ngo test ./... 2>&1 | tail -5", "go test ./...", False),
    ],
)
def test_a_failed_run_leaves_if_a_later_one_covers_it(failing: str, passing: str, stands: bool) -> None:
    script = run(Script(), failing, GO_FAILED, failed=True)
    assert bool(open_errors(run(script, passing, GO_PASSED))) is stands


def test_a_wider_run_that_fails_takes_the_place_of_the_narrow_one() -> None:
    script = run(Script(), "go test ./sync -run TestPrune", GO_FAILED, failed=True)
    assert open_errors(run(script, "go test ./...", GO_FAILED, failed=True)) == ["go test ./..."]


def test_a_run_with_two_failures_stands_until_both_tests_passed() -> None:
    both = f"--- FAIL: TestMerge (0.00s)\n{GO_FAILED}"
    script = run(Script(), "mise run test", both, failed=True)
    run(script, "go test ./sync -run TestPrune", GO_PASSED)
    assert open_errors(script) == ["mise run test"]
    assert open_errors(run(script, "go test ./sync -run TestMerge", GO_PASSED)) == []


def test_an_error_names_its_message_and_what_was_changed_since() -> None:
    script = run(Script(), "go test ./...", GO_FAILED, failed=True)
    script.call("Edit", {"file_path": "/srv/sync.go", "old_string": "a", "new_string": "b"}, "updated")
    first = extract_summary(script.turns, max_tokens=900, count=quarter)
    (line,) = read_summary(first)[Section.ERRORS]
    assert line.startswith("failed at 1: `go test ./...` — ")
    assert line.endswith(" (changed since: sync.go)")
    later = Script().call("Write", {"file_path": "/srv/merge.go", "content": "x"}, "created")
    (line,) = read_summary(extract_summary(later.turns, previous=first, max_tokens=900, count=quarter))[Section.ERRORS]
    assert line.startswith("failed at 1: `go test ./...` — ")
    assert line.endswith(" (changed since: sync.go, merge.go)")


def test_a_run_whose_tests_passed_is_remembered_until_one_fails() -> None:
    command = "cd /srv && go vet ./... 2>&1 | head -3 && go test ./... 2>&1 | tail -20"
    script = run(Script(), command, GO_PASSED)
    first = extract_summary(script.turns, max_tokens=900, count=quarter)
    assert f"- Tests passed at message 1: `{command}`" in first
    assert first.count("go vet") == 1
    edit = {"file_path": "/srv/sync.go", "old_string": "a", "new_string": "b"}
    later = (
        Script().call("Edit", edit, "updated").assistant("Changed.").user("Go on.").call("bash", {"command": "ls"}, "a")
    )
    second = extract_summary(later.turns, previous=first, max_tokens=900, count=quarter)
    assert f"- Tests passed at message 1: `{command}` (changed since: sync.go)\n" in second
    third = extract_summary(
        run(Script(), "go test ./...", GO_FAILED, failed=True).turns, previous=second, max_tokens=900, count=quarter
    )
    assert "Tests passed" not in third


def test_a_command_that_prints_what_a_test_run_printed_is_none() -> None:
    script = run(Script(), "go test ./...", GO_PASSED)
    run(script, "codex exec review --base main 2>&1 | tail", f"{GO_PASSED}\nNo findings.")
    text = extract_summary(script.turns, max_tokens=900, count=quarter)
    assert "Tests passed at message 1: `go test ./...`" in text


def test_looking_for_something_that_is_not_there_is_no_error() -> None:
    script = run(Script(), "rg -n DryRun cmd/main.go", "rg: cmd/main.go: No such file or directory", failed=True)
    assert open_errors(run(script, "git show 3d6606d", "fatal: bad object", failed=True)) == []


def test_a_command_that_was_got_round_is_no_error_for_long() -> None:
    script = run(Script(), "python try_1.py", "ModuleNotFoundError: No module named 'pytz'", failed=True)
    for number in range(4):
        run(script, f"python try_{number + 2}.py", "it works")
    assert open_errors(script) == []


@pytest.mark.parametrize(
    ("command", "printed"),
    [
        ("python3 -m pytest tests", "/usr/bin/python3: No module named pytest"),
        ("pytest", "bash: pytest: command not found"),
    ],
)
def test_a_runner_that_is_not_installed_is_not_a_failing_test(command: str, printed: str) -> None:
    script = run(Script(), command, printed, failed=True)
    for number in range(4):
        run(script, f"python tests/runtests.py part{number}", "OK")
    assert open_errors(script) == []


def test_another_command_that_failed_leaves_when_its_program_succeeds_or_the_work_goes_on() -> None:
    script = run(Script(), "git commit -m 'Add it'", "fatal: index.lock exists", failed=True)
    assert open_errors(script) == ["git commit -m 'Add it'"]
    assert open_errors(run(Script().call("Bash", {"command": "true"}), "git commit -am x", "1 file changed")) == []
    for number in range(13):
        run(script, f"make part_{number}", "done")
    assert open_errors(script) == []


def codex(output: str, *, state: str) -> str:
    return f"Chunk ID: 76e077\nWall time: 1.0 seconds\nProcess {state}\nOriginal token count: 9\nOutput:\n{output}"


def waited(script: Script, process: int, output: str, *, code: int) -> Script:
    arguments = json.dumps({"session_id": process, "chars": "", "yield_time_ms": 1000})
    return script.call("write_stdin", arguments, codex(output, state=f"exited with code {code}"))


def test_a_command_that_is_waited_for_fails_and_passes_under_its_own_name() -> None:
    script = Script()
    for process, output, code in ((1, GO_FAILED, 1), (2, GO_PASSED, 0)):
        script.call("exec_command", {"cmd": "go test ./..."}, codex("", state=f"running with session ID {process}"))
        waited(script, process, output, code=code)
        assert open_errors(script) == ["go test ./..."] * code


def test_attempts_on_one_command_are_one_line_that_says_when_it_passed() -> None:
    script = run(Script(), "go test ./sync", GO_FAILED, failed=True)
    for path in ("/srv/a.go", "/srv/b.go"):
        script.call("Edit", {"file_path": path, "old_string": "a", "new_string": "b"}, "done")
        run(script, "go test ./sync", GO_FAILED, failed=True)
    actions = actions_of(script.turns)
    (line,) = failed_attempts(script.turns, actions, changes_by_message(actions))
    reason = "1 failed; first: TestPrune: sync_test.go:76: expected block, got skip"
    assert line == f"(5, 9) changed `a.go`, `b.go`; then `go test ./sync` still failed: {reason}"
    later = actions_of(run(script, "go test ./sync", GO_PASSED).turns)
    assert joined_attempts([line], [line], later) == [f"{line}; it passed at 11"]


def test_an_attempt_says_when_its_command_succeeded_after_the_summary() -> None:
    edit = {"file_path": "/srv/kind.go", "old_string": "a", "new_string": "b"}
    script = run(Script(), "go run ./cmd probe", "undefined: kind", failed=True).call("Edit", edit, "updated")
    actions = actions_of(run(script, "go run ./cmd probe", "undefined: kind", failed=True).turns)
    first = failed_attempts(script.turns, actions, changes_by_message(actions))
    later = actions_of(Script().assistant("Now.").call("Bash", {"command": "go run ./cmd probe"}, "ok").turns)
    later = [replace(action, seq=action.seq + len(script.turns)) for action in later]
    assert joined_attempts(first, [], later)[0].endswith(f"; it passed at {later[0].seq}")
