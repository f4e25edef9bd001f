"""The state of a session: what is known at its end, and that it does not matter in how many parts it was folded."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from contextstash.events.sentences import conclusion, note_of
from contextstash.events.state import State, fold
from tests.support.turns import Script, Section, extract_summary, laws, quarter, read_summary

GO_FAILED = (
    "--- FAIL: TestPrune (0.00s)\n    sync_test.go:76: expected block, got skip\nFAIL\nFAIL\texample.org/sync\t0.1s"
)
GO_PASSED = "ok  \texample.org/sync\t0.3s"


def sections_of(script: Script) -> dict[str, list[str]]:
    return read_summary(extract_summary(script.turns, max_tokens=2_000, count=quarter))


def run(script: Script, command: str, output: str, *, failed: bool = False) -> Script:
    return script.call("Bash", {"command": command}, output, is_error=failed)


def open_failures(script: Script) -> list[str]:
    return [told.line for told in fold(script.turns).failed.values()]


def test_a_file_that_was_there_before_is_edited_not_created() -> None:
    script = Script().user("Go.").call("Read", {"file_path": "a.py"}, "x = 1\n")
    script.call("Write", {"file_path": "a.py", "content": "x = 2"}, "ok")
    script.call("Write", {"file_path": "b.py", "content": "y = 2"}, "ok")
    assert sections_of(script)[Section.FILES] == ["`b.py`: created", "`a.py`: edited"]


@pytest.mark.parametrize(
    ("failing", "passing", "stands"),
    [
        ("go test ./...", "go test ./...", False),
        ("env GOCACHE=/tmp/x go test ./sync -run TestPrune", "go test ./...", False),
        ("cd /srv && go test ./... 2>&1 | tail -5", "go test ./...", False),
        ("go test ./other", "go vet ./...", True),
        ("mise run test", "go test ./...", True),
        ("go test ./... 2>&1 | tail -5", "go test ./sync -run TestPrune", True),
        ("go test ./other", "go test ./sync", False),
    ],
)
def test_a_failed_run_leaves_if_its_program_succeeds_later(failing: str, passing: str, stands: bool) -> None:
    script = run(Script(), failing, GO_FAILED, failed=True)
    assert bool(open_failures(run(script, passing, GO_PASSED))) is stands


def test_of_several_failed_runs_of_a_program_the_newest_is_told_with_what_was_changed_since() -> None:
    script = run(Script(), "go test ./sync -run TestPrune", GO_FAILED, failed=True)
    run(script, "go test ./...", GO_FAILED, failed=True)
    script.call("Edit", {"file_path": "/srv/sync.go", "old_string": "a", "new_string": "b"}, "updated")
    (line,) = sections_of(script)[Section.FAILED]
    assert line.startswith("(3) ran `go test ./...`: 1 failed; --- FAIL: TestPrune (0.00s); sync_test.go:76: expected")
    assert line.endswith(" (changed since: /srv/sync.go)")
    run(script, "git push && git pull", "Updating").call("Agent", {"prompt": "Fix it."}, "I fixed it.")
    (line,) = sections_of(script)[Section.FAILED]
    assert line.endswith(" (changed since: /srv/sync.go, `git pull`, perhaps by a sub-agent)")


def codex(output: str, *, state: str) -> str:
    return f"Chunk ID: 76e077\nWall time: 1.0 seconds\nProcess {state}\nOriginal token count: 9\nOutput:\n{output}"


def test_a_command_that_is_waited_for_fails_and_passes_under_its_own_name() -> None:
    script = Script()
    for process, output, code in ((1, GO_FAILED, 1), (2, GO_PASSED, 0)):
        script.call("exec_command", {"cmd": "go test ./..."}, codex("", state=f"running with session ID {process}"))
        arguments = json.dumps({"session_id": process, "chars": "", "yield_time_ms": 1000})
        script.call("write_stdin", arguments, codex(output, state=f"exited with code {code}"))
        assert open_failures(script) == ["ran `go test ./...`"] * code


def test_a_run_whose_tests_passed_is_remembered_until_it_fails() -> None:
    script = run(Script(), "go test ./...", GO_PASSED)
    script.call("Edit", {"file_path": "/srv/sync.go", "old_string": "a", "new_string": "b"}, "updated")
    assert (
        "Tests passed at message 1: `go test ./...` (changed since: /srv/sync.go)" in sections_of(script)[Section.STATE]
    )
    assert fold(run(script, "go test ./...", GO_FAILED, failed=True).turns).passed == {}
    run(script, "make lint", "0 issues.")
    assert sections_of(run(script, "make test-all", GO_PASSED))[Section.STATE][:2] == [
        "Tests passed at message 9: `make test-all`", "Ran at message 7: `make lint`: 0 issues.",
    ]  # fmt: skip


def test_a_command_that_the_user_typed_is_a_run_and_one_that_goes_on_is_told() -> None:
    script = run(Script(), "go test ./...", GO_FAILED, failed=True).user("<bash-input>go test ./...</bash-input>")
    script.user(f"<bash-stdout>{GO_PASSED}</bash-stdout><bash-stderr></bash-stderr>")
    script.call("exec_command", {"cmd": "go test -race"}, codex("", state="running with session ID 9"))
    for number in range(9):
        run(script, f"ls {number}", "a.go")
    assert open_failures(script) == []
    told = "\n".join(sections_of(script)[Section.STATE])
    assert "Tests passed at message 3: the user ran `go test ./...`" in told
    assert "(5) ran `go test -race`: still running as 9, no output" in told
    script.call("write_stdin", {"session_id": 9}, codex("ok", state="exited with code 0"))
    run(script, "git checkout main && go test ./...", GO_PASSED)
    told = "\n".join(sections_of(script)[Section.STATE])
    assert "ran `go test -race`: ok" in told
    assert "still running" not in told
    assert "changed since" not in told


def test_tests_that_others_ran_are_not_told_as_passed() -> None:
    review = "git commit -qm 'Fix it'; codex exec review --base main | tail -12"
    assert fold(run(Script(), review, GO_PASSED).turns).passed == {}
    assert fold(run(Script(), "cat test.log", GO_PASSED).turns).passed == {}
    assert fold(run(Script(), "./run_all.sh", GO_PASSED).turns).passed
    assert fold(run(Script(), "go test ./... | tail -2", f"{GO_PASSED}\nFAIL").turns).passed == {}
    assert fold(run(Script(), "jest", "Exit code 1\nTests: 5 passed, 5 total", failed=True).turns).passed == {}
    assert fold(run(Script(), "pytest -k lend", "=== 9 deselected in 0.1s ===").turns).passed == {}


def test_what_the_agent_found_within_its_turn_is_told_and_no_announcement() -> None:
    script = run(Script().user("Test it."), "go test ./...", GO_FAILED, failed=True)
    script.assistant(
        "Let me look at the test. The failure of TestPrune is unrelated to my change. Ok. So it was there before."
    )
    script.thinking("Hm.")  # a message of its own, which ends no turn
    run(script, "cat sync_test.go", "package sync").assistant("Now let me run the tests of the package again.")
    run(script, "ls sync", "sync.go").user("And the docs, please.")
    run(script, "go test ./sync", GO_PASSED).assistant("All pass.").call("Bash", {"command": "ls"}, "a.go")
    found = "(3) The failure of TestPrune is unrelated to my change. Ok. So it was there before."
    assert sections_of(script)[Section.NOTES] == [found]
    assert Section.NOTES not in sections_of(script.assistant("The sync tests pass. The docs stand beside the code."))
    assert fold(script.user("And the page?").turns).notes == []


def test_an_instruction_that_the_program_puts_between_the_messages_is_kept_once() -> None:
    script = Script().user("Read the logs.").assistant("Read.")
    for text in ("Answer in French.", "Answer in French."):
        script.user(text)
        script.turns[-1] = replace(script.turns[-1], role="system")
    words = fold(run(script, "ls", "a.log").turns).words
    assert [(entry.text, entry.source) for entry in words.entries[1:]] == [("Answer in French.", "the program")]
    assert [entry.text for entry in words.own.entries] == ["Read the logs."]


def test_a_conclusion_marks_where_code_stood_and_keeps_short_items() -> None:
    text = "## Result\nThe entry is:\n```json\n{}\n```\nInstead of:\n> a rule\n> of two lines\n\n"
    text += "It is:\n1. one-way\n* **idempotent**\n**Next:**\nShall I push?"
    listed = "## Not done\n1. a.py\n2. fines.py\n   - The index of the fines is not built anew."
    told = "Not done\n1. a.py\n2. fines.py\n- The index of the fines is not built anew."
    assert note_of(f"Fine.\n{listed}") == f"Fine. {told}"
    told = (
        "Result\nThe entry is: [code]\nInstead of: “…”\nIt is:\n1. one-way\n- **idempotent**\n**Next:**\nShall I push?"
    )
    assert conclusion(text) == told


@pytest.mark.parametrize(
    ("said", "reply", "told"),
    [
        ("Two things: (1) a warning per ref; (2) which scope.\n\nElse fine.", "1: yes, 2: yes, best effort",
         "1. a warning per ref; / 2. which scope."),
        ("| # | what |\n|---|---|\n| 1 | a.py |\n| 2 | b.py |\n| 3 | c.py |\n", "skip 1, 2 and do the rest",
         "1. a.py / 2. b.py / 3. c.py"),
        ("1. a.py\n2. b.py", "run 12 tests of Python 3, at 10:02 or 1.2.", ""),
    ],
)  # fmt: skip
def test_a_request_that_speaks_of_numbers_is_told_with_all_points(said: str, reply: str, told: str) -> None:
    words = fold(Script().user("Go.").assistant(said).user(reply).turns).words
    assert words.entries[-1].asked == told


def test_what_the_agent_leaves_between_two_announcements_is_marked() -> None:
    said = (
        "Let me look. The aged index is read by every job that is left. Let me run it. Ok. That stops it. Now I push."
    )
    assert note_of(said) == "The aged index is read by every job that is left. […] Ok. That stops it."


@pytest.mark.parametrize(
    "notice",
    [
        "<task-notification>\n<task-id>a1</task-id>\n<summary>Review of fines</summary>\n"
        "<result>Two &amp; more bugs.</result>\n</task-notification>",
        '<subagent_notification>\n{"agent_path":"a1","status":{"completed":"Review of fines: Two & more bugs."}}\n'
        "</subagent_notification>",
    ],
)
def test_what_a_sub_agent_reports_in_a_notice_is_told(notice: str) -> None:
    script = run(Script().user("Review it."), "ls", "a.py").user(notice)
    script.turns[-1] = replace(script.turns[-1], kind="host")
    (told,) = [line for line in sections_of(script)[Section.STATE] if "sub-agent" in line]
    assert told.startswith("(3) A sub-agent reports: Review of fines: Two & more bugs.")


GOES_ON, ENDED = "running with session ID 7", "exited with code 0"

words = st.text(st.sampled_from("ab ./_'\"`\n#-*漢:"), max_size=40)
SAID = {
    "user": "Please {}", "stop": "[Request interrupted by user]", "text": "# Simplify\n{}", "summary": "Done {}.",
    "command": "<command-name>/review</command-name><command-args>{}</command-args>",
    "rules": "# AGENTS.md instructions for /srv\n\nNever {}.",
}  # fmt: skip
KINDS: dict[str, Any] = {"text": "host", "summary": "summary"}
kinds = st.sampled_from([*SAID, "assistant", "bash", "edit", "start", "wait"])
steps = st.lists(st.tuples(kinds, words, words), max_size=16)


@laws
@given(steps, st.integers(0, 16))
@example([("user", "", ""), ("assistant", "", ""), ("user", "", ""), ("user", "", "")], 3)
@example([("user", "", ""), ("stop", "", ""), ("assistant", "", ""), ("user", "", "")], 3)
@example([("user", "", ""), ("start", "Say so", ""), ("wait", "", "Say so")], 2)
@example([("edit", path, "") for path in ("/p/", "/q/", "", "/p/", "/q/", "")], 5)  # `src/a.py` may be either
@example([("command", "284", ""), ("user", "", ""), ("assistant", "", "")], 1)
@example([("user", "", ""), ("command", "", ""), ("text", "", ""), ("bash", "", "")], 2)
@example([("rules", "x", ""), ("user", "", ""), ("assistant", "a", ""), ("rules", "x", "")], 1)
@example([("user", "", ""), ("assistant", "a", ""), ("assistant", "b", ""), ("summary", "b", "")], 3)
def test_a_session_that_is_folded_in_two_parts_has_the_same_state(drawn: list[tuple[str, str, str]], cut: int) -> None:
    script = Script()
    ends = [0]
    for kind, text, output in drawn:
        if kind in SAID:
            script.user(SAID[kind].format(text))
            script.turns[-1] = replace(script.turns[-1], kind=KINDS.get(kind, "message"))
        elif kind == "assistant":
            script.assistant(f"Done {text}.")
        elif kind == "bash":
            script.call("Bash", {"command": f"pytest {text}"}, output)
        elif kind == "start":
            script.call("exec_command", {"cmd": f"git commit -m '{text}'"}, codex("", state=GOES_ON))
        elif kind == "wait":
            script.call("write_stdin", {"session_id": 7}, codex(f"[main a1b2c3d] {output}", state=ENDED))
        else:
            script.call("Edit", {"file_path": f"{text}src/a.py", "old_string": "a", "new_string": output}, "updated")
        ends.append(len(script.turns))
    cut = ends[min(cut, len(ends) - 1)]
    whole = fold(script.turns)
    adapter = TypeAdapter(State)
    first = adapter.validate_json(adapter.dump_json(fold(script.turns[:cut])))
    parts = fold(script.turns[cut:], first)
    assert parts == whole


def plan_of(script: Script) -> list[tuple[str, str]]:
    return [*fold(script.turns).plan.tasks.values()]


def created() -> Script:
    script = Script().user("Go.")
    for number, subject in enumerate(("Parse dates", "Write docs"), 1):
        task = {"subject": subject, "description": f"{subject} in `loans.py`."}
        script.call("TaskCreate", task, f"Task #{number} created successfully")
    return script


def test_a_list_of_the_tasks_says_how_they_stand() -> None:
    script = created().call("TaskList", {}, "#2 [in_progress] Write docs\n#1 [completed] Parse dates")
    what = [f"#{number}: {name} — {name} in `loans.py`." for number, name in ((1, "Parse dates"), (2, "Write docs"))]
    listed = [("done", what[0]), ("doing", what[1])]
    assert plan_of(script) == listed
    script.call("TodoWrite", {"todos": [{"content": "New"}]}, "Error", is_error=True)
    assert plan_of(script.call("TaskUpdate", {"taskId": "9", "status": "completed"}, "Updated")) == listed
