"""Commits, pull requests as a summary tells them."""

from __future__ import annotations

import pytest

from tests.support.turns import Script, Section, extract_summary, quarter, read_summary


def told_in(script: Script, section: Section, beginning: str = "") -> list[str]:
    text = extract_summary(script.turns, max_tokens=2_000, count=quarter)
    return [line for line in read_summary(text).get(section, []) if line.startswith(beginning)]


def bash(script: Script, command: str, printed: str) -> Script:
    return script.call("Bash", {"command": command}, printed)


DOCUMENT = "git add -A && git commit -m \"$(cat <<'EOF'\nRead the fines once\n\nThe file was read twice.\nEOF\n)\""


@pytest.mark.parametrize(
    ("command", "printed", "told"),
    [
        (DOCUMENT, "[fines 1a2b3c4] Read the fines once\n 1 file changed",
         "committed 1a2b3c4 on fines: Read the fines once"),
        ("git commit -q -F - <<'EOF'\nRead the fines once\nEOF", "", "committed: Read the fines once"),
        ('git add a.py && git commit -qm "Read the fines once"', "", "committed: Read the fines once"),
        ("git -C /srv commit -q -m 'Read the fines once'", "", "committed: Read the fines once"),
        ('git -c user.name="Ada L" commit -qm "Read the fines once"', "", "committed: Read the fines once"),
        ("git commit -q --amend -m 'Read once'", "", "committed: Read once (amends the commit before)"),
    ],
)  # fmt: skip
def test_a_commit_is_told_by_what_git_prints_or_by_its_message(command: str, printed: str, told: str) -> None:
    assert told_in(bash(Script().user("Commit."), command, printed), Section.DONE) == [f"(2) {told}"]


FAILED = "Exit code 128\nfatal: index.lock: File exists."
REFUSED = "The user doesn't want to proceed with this tool use. The tool use was rejected."


@pytest.mark.parametrize(("flags", "printed"), [("-m", FAILED), ("-m", REFUSED), ("-qm", REFUSED)])
def test_a_commit_that_failed_or_was_refused_is_not_told_even_without_a_flag_for_it(flags: str, printed: str) -> None:
    assert told_in(bash(Script().user("Commit."), f"git commit {flags} 'Read once'", printed), Section.DONE) == []


def test_what_was_changed_since_the_last_commit_of_the_session_is_told() -> None:
    def commits() -> list[str]:
        return told_in(script, Section.STATE, "Last commit ")

    script = bash(Script().user("Fix it."), "git status", "On branch fines\nnothing to commit, working tree clean")
    assert commits() == []
    bash(script, "git commit -am 'Fix it'", "[fines 1a2b3c4] Fix it\n 1 file changed")
    script.call("Edit", {"file_path": "/srv/a.py", "old_string": "a", "new_string": "b"}, "done")
    told = "Last commit by a call of this session: 1a2b3c4 on fines, message 4"
    assert commits() == [f"{told}; no call has pushed since (changed since: /srv/a.py)"]
    bash(script, "git checkout -- a.py", "")
    bash(script, "git commit --dry-run -m 'Say that git push is not run'", "")
    bash(script, "git commit --dry-run -F - <<'EOF'\nDon't\nEOF\ngit push -q origin 'fines'", "")
    assert commits() == [f"{told}; `git push` was run at message 12"]
    bash(script, "git commit -q --amend --no-edit", "")
    assert commits() == ["Last commit by a call of this session: message 14; no call has pushed since"]
    bash(script, "git merge origin/main --no-edit", "Merge made by the 'ort' strategy.")
    assert commits() == []  # another one is the newest
    bash(script, "git commit -qm 'Say so'", "")
    bash(script, "git commit -m 'Say so'", "Wall time: 1.0 seconds\nProcess running with session ID 7\nOutput:\n")
    assert commits() == []


@pytest.mark.parametrize(
    ("command", "printed", "told"),
    [
        ("git status", "On branch main\nnothing to commit, working tree clean", "On branch main / nothing to commit"),
        ("cd /srv && git status -sb", "## b...o/b\n M a.py\n?? b/", "## b...o/b / [ M] a.py / [??] b/"),
        ("git status", "fatal: not a git repository", ""),
        ("git status a.py", "On branch main\n\tmodified:   a.py", ""),
        ("git status; cat Makefile", "On branch main\n\tmodified:   a b.c\n\tc.c\nall:\n\tgcc -o x",
         "On branch main / modified: a b.c / untracked: c.c"),
        ("git status && git pull", "On branch main\nnothing to commit\nUpdating", ""),
    ],
)  # fmt: skip
def test_what_git_says_of_the_whole_work_tree_is_told(command: str, printed: str, told: str) -> None:
    script = bash(Script().user("Look."), command, printed)
    (said,) = told_in(script, Section.STATE, "Git status") or [""]
    assert said.removeprefix("Git status at message 2: ").removesuffix(", working tree clean") == told
    assert told_in(script.call("Agent", {"prompt": "Fix it."}, "I did."), Section.STATE, "Git status") == []


def test_the_extent_of_a_change_that_was_asked_for_is_told() -> None:
    printed = " planner.go      | 83 ++++--\n docs/a b.png    | Bin 0 -> 9 bytes\n 2 files changed, 80 insertions(+)\n"
    script = bash(Script().user("Review it."), "cd /srv && git diff --stat main...HEAD | cat", printed)
    (told,) = told_in(script, Section.STATE, "`git diff")
    assert told == "`git diff --stat main...HEAD` at message 2: planner.go 83, docs/a b.png Bin"
    bash(script, "git commit -qm 'Plan once'", "")
    assert told_in(script, Section.STATE, "`git diff") == []


def test_what_was_changed_elsewhere_is_told_with_its_address() -> None:
    script = bash(Script().user("Commit, open a PR."), "git commit -qm 'Read the fines once'", "")
    url = "https://github.com/city/fines/pull/7"
    bash(script, "git push && gh pr create --title 'Read the fines once' --body x", f"  1a2b..5d6e  fines\n{url}")
    script.call("mcp__linear__create_issue", {"title": "Fines"}, "created LIB-7")
    script.call("mcp__linear__list_issues", {"title": "Fines"}, "LIB-7")
    assert told_in(script, Section.DONE) == [
        "(2) committed: Read the fines once", f"(4) opened {url}",
        "(6) called mcp__linear__create_issue Fines: created LIB-7",
    ]  # fmt: skip
