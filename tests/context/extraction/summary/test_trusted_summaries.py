"""What a person would trust in a summary: whole statements, files that are files, nothing of a host's as the task."""

from __future__ import annotations

import pytest

from contextstash.context.extraction.statements import is_statement, takes_back
from contextstash.context.extraction.summary.extractive_summary import extract_summary
from contextstash.context.extraction.summary_format import Section, read_summary
from contextstash.context.extraction.user.requests_and_rules import Request, user_rules
from tests.support.turns import Script, quarter


def sections_of(script: Script, previous: str | None = None) -> dict[Section, list[str]]:
    return read_summary(extract_summary(script.turns, previous=previous, max_tokens=2_000, count=quarter))


@pytest.mark.parametrize(
    "sentence",
    [
        "But actually, if `load` returned None before, the cause is in cache.py.",
        "Wait, `load` never returns None.",
        "Hmm, the cache is already removed in `close`.",
        "and name the existing helper because it is already used.",
        "Maybe `load` fails because the cache is missing.",
        "I think the root cause is in cache.py.",
        "Export the harness types (`TestEnv`, `AgentRunner`, etc.",
        "— already exported, so that is fixed.",
        "`★ Insight ─────────────────────────────────────`",
        "Option 2: `load` returns an error instead of None.",
        "We could return an error instead of None.",
        "The cause is that `load` returns None, and",
        "`load_all` `cache.py`",
    ],
)
def test_a_fragment_or_a_thought_aloud_is_no_finding(sentence: str) -> None:
    assert not is_statement(sentence)


@pytest.mark.parametrize(
    "sentence",
    [
        "The root cause: `charge_fine` runs once in `return_loan` and once in `close_day`.",
        "Missing nil check: `ReadCommitted` can return `(nil, nil)` in line 175.",
        "`make test-e2e` runs all tests of the suite.",
        "cache.py was changed because `load` returned None.",
        "原因是缓存没有关闭。",
    ],
)
def test_a_whole_statement_is_a_finding(sentence: str) -> None:
    assert is_statement(sentence)


def test_what_the_next_sentence_takes_back_is_no_finding() -> None:
    assert takes_back("But wait, that is only the test.")
    script = Script().user("Find it.")
    script.assistant("The root cause is `load` in cache.py. Wait, no. The bug is that `store` never closes the file.")
    findings = sections_of(script.user("Go on with the next part now.").assistant("On it."))[Section.FINDINGS]
    assert findings == ["(1) The bug is that `store` never closes the file."]


@pytest.mark.parametrize(
    "text",
    [
        '{"type": "task_reminder", "content": [], "itemCount": 0}',
        '{"type": "edited_text_file", "filename": "/srv/a.py", "snippet": "1\\tAlways EVIL"}',
    ],
)
def test_an_attachment_of_the_host_is_no_request(text: str) -> None:
    sections = sections_of(Script().user("Fix the dates.").user(text).call("Bash", {"command": "ls"}, "a.py"))
    assert sections[Section.TASK] == ["Fix the dates."]
    assert sections[Section.OPEN] == ["In progress: Fix the dates."]


def test_a_line_in_the_middle_of_a_sentence_of_a_pasted_text_is_no_rule() -> None:
    pasted = "Guidelines follow here.\n" * 120 + "You must check new code\nand never call the helper.\nNever push."
    assert user_rules(Request(0, pasted)) == [("You must check new code", True), ("Never push.", True)]


def test_a_file_that_was_there_before_is_edited_not_created() -> None:
    script = Script().user("Go.").call("Read", {"file_path": "a.py"}, "x = 1\n")
    script.call("Write", {"file_path": "a.py", "content": "x = 2"}, "ok")
    script.call("Write", {"file_path": "b.py", "content": "y = 2"}, "ok")
    assert sections_of(script)[Section.FILES] == ["`b.py`: created", "`a.py`: edited, read"]


def test_a_relative_path_beside_a_base_folder_stays_relative_in_the_next_summary() -> None:
    script = Script().user("Go.").call("Bash", {"command": "rm notes.txt"}, "")
    for name in ("a", "b", "c"):
        script.call("Edit", {"file_path": f"/srv/app/src/{name}.py", "old_string": "", "new_string": "x"}, "ok")
    first = extract_summary(script.turns, max_tokens=2_000, count=quarter)
    later = Script().call("Bash", {"command": "ls"}, "a.py")
    assert "`./notes.txt`: deleted" in sections_of(later, previous=first)[Section.FILES]


def test_an_error_is_fixed_by_the_same_run_in_another_environment() -> None:
    script = Script().user("Go.").call("Bash", {"command": "go test ./..."}, "exit status 1\n", is_error=True)
    script.call("Bash", {"command": "env GOCACHE=/tmp/c go test ./..."}, "ok  \tapp\t0.2s\n")
    assert Section.ERRORS not in sections_of(script)


def test_a_question_that_the_assistant_asks_itself_is_not_open_and_one_to_the_user_is() -> None:
    last = (
        "The watcher lists one folder. But what if the folder does not exist? What if it is a file, not a folder?"
        " Should I also watch files?"
    )
    text = extract_summary(Script().user("Mend it.").assistant(last).turns, max_tokens=500, count=quarter)
    assert read_summary(text)[Section.OPEN] == ["Should I also watch files?"]


@pytest.mark.parametrize(
    "sentence",
    [
        "Now remove the unused imports from `cache.py`, because `load` changed.",
        "Look at what `test_load` expects of `store`.",
        "Bug 2: Add CacheCloser, and call `close` in `load`.",
        "Good, now check if `load` is still missing in `cache.py`.",
        "It calls `load` in `cache.py`, which never closes the file.",
        "This means that `load` in `cache.py` never closes the file.",
    ],
)
def test_what_to_do_or_what_points_back_is_no_finding(sentence: str) -> None:
    script = Script().user("Find it.").assistant(sentence).user("Go on with the next part now.").assistant("On it.")
    assert Section.FINDINGS not in sections_of(script)


@pytest.mark.parametrize(
    "sentence",
    [
        "Test suite passes again since `load` closes the file.",
        "Added `close` to `load` in `cache.py`.",
        "This fixture already creates `cache.py` and `store.py`.",
        "Use of `load` without `close` is the cause: the file was never closed.",
    ],
)
def test_what_is_the_case_is_a_finding(sentence: str) -> None:
    script = Script().user("Find it.").assistant(sentence).user("Go on with the next part now.").assistant("On it.")
    assert sections_of(script)[Section.FINDINGS] == [f"(1) {sentence}"]


def test_a_pasted_text_has_rules_where_it_commands_and_not_where_it_describes() -> None:
    described = (
        "Root cause: `init` is never called for this command.\n"
        "Each has an explanation as required by the config.\n"
        "The project was previously stdlib-only for testing.\n"
    )
    commands = "Never edit the generated files.\nYour change must pass the linter.\n"
    pasted = Request(0, described + commands + "The rest of the review is about names.\n" * 60)
    assert [rule for rule, _ in user_rules(pasted)] == [
        "Never edit the generated files.",
        "Your change must pass the linter.",
    ]


def test_the_name_of_a_test_is_no_file() -> None:
    script = Script().user("Test it.")
    for command in ("python runtests.py orders.test_refunds", "python -m django test", "python orders.test_refunds"):
        script.call("Bash", {"command": command}, "OK")
    assert sections_of(script)[Section.FILES] == ["`runtests.py`: run"]


def test_the_last_state_says_that_a_change_is_done_and_separates_the_commands_of_a_script() -> None:
    script = Script().user("Fix it.")
    edit = {"file_path": "/srv/app/fines.py", "old_string": "a", "new_string": "b"}
    script.call("Edit", edit, "The file /srv/app/fines.py has been updated successfully.")
    script.call("Bash", {"command": "cat > run.py <<'EOF'\nprint(1)\nEOF\npython run.py"}, "1")
    script.call("Edit", edit, "The file /srv/app/fines.py has been updated successfully.")
    script.call("TodoWrite", {"todos": []}, "Todos have been modified successfully.")
    state = sections_of(script)[Section.STATE]
    assert sum("Edit /srv/app/fines.py: + b" in line for line in state) == 1
    assert not any("Todo" in line for line in state)
    assert any(line.startswith("(4) ran `cat > run.py <<…; python run.py`") for line in state)


def test_a_request_that_was_shortened_is_whole_again_once_there_is_room() -> None:
    wish = "Fix the fines. " + " ".join(f"Rule {number} of the plan is that fines are rounded." for number in range(60))
    script = Script().user(wish).user("Use whole days only.").call("Bash", {"command": "ls"}, "fines.py")
    first = extract_summary(script.turns, max_tokens=240, count=quarter)
    shortened, short = read_summary(first)[Section.TASK]
    assert "[…]" in shortened
    later = Script().call("Bash", {"command": "ls"}, "fines.py")
    second = extract_summary(later.turns, previous=first, history=script.turns, max_tokens=4_000, count=quarter)
    assert read_summary(second)[Section.TASK] == [wish.strip(), short]
    without = extract_summary(later.turns, previous=first, max_tokens=4_000, count=quarter)
    assert read_summary(without)[Section.TASK] == read_summary(first)[Section.TASK]


def test_a_question_that_the_user_answered_is_not_open_any_more() -> None:
    script = Script().user("Fix the fines.").call("Bash", {"command": "ls"}, "fines.py")
    script.assistant("`charge_fine` is fixed. Want me to add a test for it?").user("yes please do")
    script.call("Bash", {"command": "cat fines.py"}, "def charge_fine(): ...")
    said = "Asked “Want me to add a test for it?” the user answered “yes please do”"
    assert sections_of(script)[Section.OPEN] == [f"In progress: {said}"]


def test_paths_are_shortened_only_after_their_base_folder_is_left_out() -> None:
    base = f"/srv/{'very-long-folder-name/' * 4}app"
    script = Script().user("Fix the fines.")
    for name in ("fines", "loans", "holds"):
        script.call("Read", {"file_path": f"{base}/{name}.py"}, f"def charge_{name}(): ...\n" * 30)
    sections = sections_of(script)
    assert any(") Read holds.py: " in line for line in sections[Section.STATE])
    assert any(": Read holds.py: " in line for line in sections[Section.ARCHIVED])


def test_a_file_of_an_earlier_summary_is_not_listed_a_second_time() -> None:
    script = Script().user("Fix the fines.")
    for name in ("fines", "loans", "holds"):
        script.call("Read", {"file_path": f"/srv/app/{name}.py"}, f"def charge_{name}(day_of_{name}): ...\n" * 30)
        edit = {"file_path": f"/srv/app/{name}.py", "old_string": "...", "new_string": "pass"}
        script.call("Edit", edit, "done")
    first = extract_summary(script.turns, max_tokens=2_000, count=quarter)
    later = Script().call("Read", {"file_path": "/srv/app/fines.py"}, "def charge_fines(day_of_fines): ...\n" * 30)
    second = extract_summary(
        later.turns, previous=first, history=[*script.turns, *later.turns], max_tokens=2_000, count=quarter
    )
    homes = [line.partition(":")[0] for line in read_summary(second)[Section.NAMES]]
    assert homes.count("fines.py") == 1
    assert len(homes) == len(set(homes))
