"""What a summary tells of the work that was done: commits, pull requests, reports, and the changes since."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from contextstash.context.extraction.summary.extractive_summary import extract_summary
from contextstash.context.extraction.summary_format import Section, read_summary
from tests.support.turns import Script, quarter

EDIT = {"file_path": "/srv/fines.py", "old_string": "load()", "new_string": "load(once=True)"}


def done_in(script: Script, **more: Any) -> list[str]:
    text = extract_summary(script.turns, max_tokens=2_000, count=quarter, **more)
    return read_summary(text).get(Section.DONE, [])


def bash(script: Script, command: str, printed: str) -> Script:
    return script.call("Bash", {"command": command}, printed)


def test_a_commit_is_told_by_what_git_prints_and_by_the_rest_of_its_message() -> None:
    script = Script().user("Fix it and commit.")
    bash(
        script,
        "git add -A && git commit -m \"$(cat <<'EOF'\nRead the fines once\n\nThe file was read twice.\n\n"
        'Co-Authored-By: Claude <a@b.c>\nEOF\n)"',
        "[fines 1a2b3c4] Read the fines once\n 1 file changed",
    )
    assert done_in(script) == ["(2) committed 1a2b3c4 on fines: Read the fines once\nThe file was read twice."]


@pytest.mark.parametrize(
    "command",
    [
        "git commit -q -F - <<'EOF'\nRead the fines once\nEOF",
        'git add a.py && git commit -qm "Read the fines once"',
        "git -C /srv commit -q -m 'Read the fines once'",
    ],
)
def test_a_quiet_commit_is_told_by_its_message(command: str) -> None:
    assert done_in(bash(Script().user("Commit."), command, "")) == ["(2) committed: Read the fines once"]


def test_an_amended_commit_takes_the_place_of_the_one_before() -> None:
    script = bash(Script().user("Commit."), "git commit -qm 'Read the fines once'", "")
    bash(script, "git commit -q --amend -m 'Read the fines only once'", "")
    assert done_in(script) == ["(4) committed: Read the fines only once"]


def test_a_failed_or_refused_commit_is_not_told() -> None:
    failed = "Exit code 128\nfatal: index.lock: File exists."
    assert done_in(bash(Script().user("Commit."), "git commit -m 'Read once'", failed)) == []


def test_a_pull_request_stands_in_the_line_of_the_commit_whose_title_it_has() -> None:
    script = bash(Script().user("Commit, open a PR."), "git commit -qm 'Read the fines once'", "")
    url = "https://github.com/city/fines/pull/7"
    bash(script, "git push && gh pr create --title 'Read the fines once' --body x", f"done\n{url}")
    bash(script, 'gh pr create --title "Close the file"', url.replace("7", "8"))
    assert done_in(script) == [
        f"(2) committed: Read the fines once; opened {url}",
        "(6) opened https://github.com/city/fines/pull/8: Close the file",
    ]


def test_what_was_changed_since_the_last_commit_is_told_in_the_agents_words() -> None:
    script = Script().user("Fix it.").assistant("The reader is called twice. I’m caching what `load` returns:")
    script.call("Edit", EDIT, "updated")
    assert done_in(script) == [
        "(1) changed `fines.py`: “The reader is called twice. I’m caching what `load` returns”",
    ]
    bash(script.assistant("Committing that now."), "git commit -qm 'Read the fines once'", "")
    assert done_in(script) == ["(6) committed: Read the fines once"]


def test_of_a_thought_aloud_only_what_follows_it_is_quoted() -> None:
    said = "The loader is the cause. But wait, it is not. I’ll cache what it returns:"
    script = Script().user("Fix it.").assistant(said)
    assert done_in(script.call("Edit", EDIT, "updated")) == ["(1) changed `fines.py`: “I’ll cache what it returns”"]


def test_the_agents_own_scripts_and_backups_are_no_work() -> None:
    script = Script().user("Fix it.").assistant("Let me write a script that shows the error.")
    bash(script, "cat > /srv/show.py <<'EOF'\nprint(1)\nEOF", "")
    bash(script, "cp /srv/fines.py /srv/fines.py.bak && python3 /srv/show.py", "1")
    assert done_in(script) == []


def test_what_the_agent_reports_as_done_stays_also_if_it_is_changed_later() -> None:
    script = Script().user("Fix it.").call("Edit", EDIT, "updated")
    report = "### Cache — `fines.py`\n`load` was called twice a day. Added a cache to `load`."
    script.assistant(f"Done.\n\n{report}").user("And?")
    script.assistant("Looking.").call("Edit", EDIT, "updated")
    assert done_in(script)[0] == "(3) Cache — `fines.py`: `load` was called twice a day. Added a cache to `load`."


def test_what_is_done_is_known_over_summaries() -> None:
    first = extract_summary(
        bash(Script().user("Commit."), "git commit -qm 'Read the fines once'", "").turns, max_tokens=900, count=quarter
    )
    later = bash(Script().user("Next."), "git commit -qm 'Close the file'", "")
    later.turns = [replace(turn, seq=turn.seq + 3) for turn in later.turns]
    assert done_in(later, previous=first) == ["(2) committed: Read the fines once", "(5) committed: Close the file"]
