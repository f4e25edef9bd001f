"""Commits and pull requests, as a summary tells them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.turns import Script, Section, extract_summary, quarter, read_summary


def done_in(script: Script, **more: Any) -> list[str]:
    text = extract_summary(script.turns, max_tokens=2_000, count=quarter, **more)
    return read_summary(text).get(Section.DONE, [])


def bash(script: Script, command: str, printed: str) -> Script:
    return script.call("Bash", {"command": command}, printed)


def test_a_commit_is_told_by_what_git_prints() -> None:
    script = Script().user("Fix it and commit.")
    bash(
        script,
        "git add -A && git commit -m \"$(cat <<'EOF'\nRead the fines once\n\nThe file was read twice.\n\n"
        'Co-Authored-By: Claude <a@b.c>\nEOF\n)"',
        "[fines 1a2b3c4] Read the fines once\n 1 file changed",
    )
    assert done_in(script) == ["(2) committed 1a2b3c4 on fines: Read the fines once"]


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


def commit_in(script: Script) -> list[str]:
    text = extract_summary(script.turns, max_tokens=2_000, count=quarter)
    return [line for line in read_summary(text).get(Section.STATE, []) if line.startswith("Last commit ")]


def test_what_was_changed_since_the_last_commit_of_the_session_is_told() -> None:
    script = bash(Script().user("Fix it."), "git status", "On branch fines\nnothing to commit, working tree clean")
    assert commit_in(script) == []
    bash(script, "git commit -am 'Fix it'", "[fines 1a2b3c4] Fix it\n 1 file changed")
    assert commit_in(script) == [
        "Last commit by a call of this session: 1a2b3c4 on fines, message 4; no call has pushed since"
    ]
    script.call("Edit", {"file_path": "/srv/a.py", "old_string": "a", "new_string": "b"}, "done")
    assert commit_in(script) == [
        "Last commit by a call of this session: 1a2b3c4 on fines, message 4; no call has pushed since"
        " (changed since: a.py)"
    ]
    bash(script, "git checkout -- a.py", "")
    bash(script, "git push -q", "")
    told = "Last commit by a call of this session: 1a2b3c4 on fines"
    assert commit_in(script) == [f"{told}, message 4; `git push` was run at message 10"]
    bash(script, "git rebase origin/main", "Successfully rebased and updated refs/heads/fines.")
    told += " (before `git rebase` in message 12, which may have rewritten it), message 4"
    assert commit_in(script) == [f"{told}; `git push` was run at message 10"]
    bash(script, "git commit -q --amend --no-edit", "")
    assert commit_in(script) == ["Last commit by a call of this session: message 14; no call has pushed since"]


def test_an_amended_commit_is_told_as_amended() -> None:
    script = bash(Script().user("Commit."), "git commit -qm 'Read the fines once'", "")
    bash(script, "git commit -q --amend -m 'Read the fines only once'", "")
    assert done_in(script) == [
        "(2) committed: Read the fines once",
        "(4) committed: Read the fines only once (amends the commit before)",
    ]


def test_a_pull_request_is_told_with_its_address_and_title() -> None:
    script = bash(Script().user("Commit, open a PR."), "git commit -qm 'Read the fines once'", "")
    url = "https://github.com/city/fines/pull/7"
    # That the branch was pushed is said with it.
    pushed = "  1a2b3c4..5d6e7f8  fines -> fines"
    bash(script, "git push && gh pr create --title 'Read the fines once' --body x", f"{pushed}\n{url}")
    bash(script, 'gh pr create --title "Close the file"', url.replace("7", "8"))
    assert done_in(script) == [
        "(2) committed: Read the fines once",
        f"(4) opened {url}: Read the fines once",
        "(6) opened https://github.com/city/fines/pull/8: Close the file",
    ]


def test_what_is_done_is_known_over_summaries() -> None:
    first = extract_summary(
        bash(Script().user("Commit."), "git commit -qm 'Read the fines once'", "").turns, max_tokens=900, count=quarter
    )
    later = bash(Script().user("Next."), "git commit -qm 'Close the file'", "")
    later.turns = [replace(turn, seq=turn.seq + 3) for turn in later.turns]
    assert done_in(later, previous=first) == ["(2) committed: Read the fines once", "(5) committed: Close the file"]


FAILED = "Exit code 128\nfatal: index.lock: File exists."
REFUSED = "The user doesn't want to proceed with this tool use. The tool use was rejected."


@pytest.mark.parametrize(("flags", "printed"), [("-m", FAILED), ("-m", REFUSED), ("-qm", REFUSED)])
def test_a_commit_that_failed_or_was_refused_is_not_told_even_without_a_flag_for_it(flags: str, printed: str) -> None:
    assert done_in(bash(Script().user("Commit."), f"git commit {flags} 'Read once'", printed)) == []


def test_the_branch_is_told_as_git_named_it_last_unless_a_commit_names_it() -> None:
    def branch_in(script: Script) -> list[str]:
        text = extract_summary(script.turns, max_tokens=2_000, count=quarter)
        return [line for line in read_summary(text).get(Section.STATE, []) if line.startswith("Git branch ")]

    script = bash(Script().user("Fix it."), "git checkout -b fines", "Switched to a new branch 'fines'")
    assert branch_in(script) == ["Git branch at message 2: `fines`"]
    bash(script, "git commit -am 'Fix it'", "[fines 1a2b3c4] Fix it\n 1 file changed")
    assert branch_in(script) == []
    bash(script, "cat notes", "On branch other")
    bash(script, "git status", "On branch loans\nnothing to commit, working tree clean")
    assert branch_in(script) == ["Git branch at message 8: `loans`"]
    bash(script, "cd /srv; git checkout -q main; sed -n 1,9p a.py", "import csv")
    assert branch_in(script) == ["Git branch at message 10: `main`"]
    bash(script, "git checkout -q a.py; git checkout -q 1a2b3c4; git checkout -q -- b", "")
    assert branch_in(script) == ["Git branch at message 10: `main`"]
    bash(script, "git log --oneline -1 --decorate", "1a2b3c4 (HEAD -> dues, origin/dues) Fix it")
    assert branch_in(script) == ["Git branch at message 14: `dues`"]
    bash(script, "cd /srv && git rev-parse --abbrev-ref HEAD", "holds")
    assert branch_in(script) == ["Git branch at message 16: `holds`"]
    bash(script, "git checkout -q -b fees; git commit -qm 'Charge once'", "")  # a quiet commit names none
    assert branch_in(script) == ["Git branch at message 18: `fees`"]


@pytest.mark.parametrize(
    ("printed", "told"),
    [
        ("On branch main\nnothing to commit, working tree clean", "clean"),
        ("## b...o/b [ahead 1]\n M a.py\n?? notes/\n", "b...o/b [ahead 1]; 1 changed (`a.py`); 1 untracked (`notes/`)"),
        ("fatal: not a git repository", None),
    ],
)  # fmt: skip
def test_what_git_says_of_the_work_tree_is_told(printed: str, told: str | None) -> None:
    script = bash(Script().user("Look."), "git status", printed)
    lines = read_summary(extract_summary(script.turns, max_tokens=900, count=quarter))[Section.STATE]
    expected = [] if told is None else [f"Git status at message 2: {told}"]
    assert [line for line in lines if line.startswith("Git status")] == expected
