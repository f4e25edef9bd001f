"""What counts as a finding of the agent: whole sentences, of contradicting ones the newest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from contextstash.context.extraction.findings import standing_findings, statements_of
from contextstash.context.extraction.summary.extractive_summary import extract_summary
from contextstash.context.extraction.summary_format import Section, read_summary
from tests.support.turns import Script, quarter


def found(said: str) -> list[str]:
    return [
        finding.text
        for finding in statements_of(Script().user("Look.").assistant(said).user("Go on.").turns)
        if finding.tells
    ]


@pytest.mark.parametrize(
    "said",
    [
        "- `read_metadata()` - helper to read metadata from the git blob",
        "- `FilesTouched` struct → has the fields that `read_metadata` fills",
        "- “…” - could simplify `close_here` to a shorter text",
        "I’m comparing `read_metadata` against `write_metadata` because both changed.",
        "// read_metadata reads the blob and never returns None",
        "- On first prompt of `read_metadata`",
    ],
)
def test_a_fragment_a_comment_or_what_the_agent_is_doing_is_no_finding(said: str) -> None:
    assert found(said) == []


@pytest.mark.parametrize(
    "said",
    [
        "The cause is that `read_metadata` returns None for an empty blob.",
        "- Added `FilesTouched` to `read_metadata` so that both sessions are listed",
        "- The call of `read_metadata` is skipped if `FilesTouched` is empty",
    ],
)
def test_a_whole_sentence_is_a_finding(said: str) -> None:
    assert found(said) == [said.removeprefix("- ")]


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("Hooks are installed on each stop by `EnsureSetup`.", "`EnsureSetup` is now only in the prompt handlers."),
        ("`load_fines` returns None for an empty list.", "`load_fines` does not return None for an empty list."),
        ("All tests of the package pass.", "Two tests fail after the change."),
        ("`load_fines` installs the hooks if missing.", "`load_fines` installs the 4 hooks if they are missing."),
    ],
)
def test_of_contradicting_or_equal_findings_the_newest_stays(earlier: str, later: str) -> None:
    assert standing_findings([earlier, later]) == {later}
    summary = extract_summary(Script().user("Go.").assistant(f"Found: see below. {later}").assistant("Done.").turns,
                              previous=f"## Findings\n- {earlier}", max_tokens=900, count=quarter)  # fmt: skip
    assert earlier not in read_summary(summary).get(Section.FINDINGS, [])


@pytest.mark.parametrize(
    "said",
    [
        "Now the planner types in `types.go` and `client.go`.",
        "Next, a test for `BuildDesiredRefs` with `AllRefs`.",
        "Good - most recent `Session` only.",
        "**So either:**\n1. The bug does not exist and `fix()` was unnecessary.\n2. `watch_dir()` is the cause.",
        "If it does not work, then either:\n1. `get_dirs()` is returning the wrong folders.\n2. `watch_dir()` fails.",
        "Why does `load` fail?\n\n- The path of `load` is wrong.\n- The cache of `load` is stale.",
    ],
)
def test_what_is_announced_or_only_supposed_is_no_finding(said: str) -> None:
    assert found(said) == []


def test_what_is_listed_behind_a_statement_is_a_finding() -> None:
    said = "Now `load` returns a list.\n\nWhat changed:\n- `load` is called once by `read_all`."
    assert found(said) == ["Now `load` returns a list.", "`load` is called once by `read_all`."]


def test_a_finding_names_its_message_over_two_summaries() -> None:
    script = Script().user("Look.").assistant("`load_fines` returns None for an empty list.").user("Go on.")
    script.assistant("Yes.")
    first = extract_summary(script.turns, max_tokens=900, count=quarter)
    later = Script().assistant("`store` closes the file before `load` reads it.").user("Go on now.").assistant("Yes.")
    later.turns = [replace(turn, seq=turn.seq + 3) for turn in later.turns]
    second = extract_summary(later.turns, previous=first, max_tokens=900, count=quarter)
    assert read_summary(second)[Section.FINDINGS] == [
        "(1) `load_fines` returns None for an empty list.",
        "(3) `store` closes the file before `load` reads it.",
    ]


def test_findings_about_other_things_stay() -> None:
    both = ["`load_fines` is called twice a day.", "`save_fines` is now called by `close`."]
    assert standing_findings(both) == set(both)


def test_findings_are_told_in_their_order() -> None:
    script = Script().user("Look.")
    for number in range(6):
        script.assistant(f"The cause of case {number} is that `part_{number}` was missing in `all_{number % 2}`.")
    text = extract_summary(script.assistant("Done.").turns, max_tokens=2_000, count=quarter)
    lines = read_summary(text)[Section.FINDINGS]
    assert len(lines) == 6
    assert lines == sorted(lines)


def findings_of(script: Script, **more: Any) -> list[str]:
    text = extract_summary(script.turns, max_tokens=2_000, count=quarter, **more)
    return list(read_summary(text).get(Section.FINDINGS, ()))


@pytest.mark.parametrize(
    "said",
    [
        "When `id` is renamed, `fk_field` should now default to it.",
        "This dead code in `stage_files` should be removed.",
        "`load_fines` seems to return None for an empty list.",
        "Change call sites to use `new_id()` and handle errors (skip invalid entries).",
        "Trusted data from storage: Use `must_id` there.",
        "All three are quick and do nothing if `load` is set already.",
        "I found the list in `README.md`; next I’m reading `load_fines` because it fails.",
        "While that ends, I'm checking whether `load_fines` is only called by `close_day`.",
        "This includes all files of `src/fines`, which are already read by `load_fines`.",
        "Updated Design Section 3: Code Changes Summary",
        "The failure of `go test` was only the build cache, so I’m rerunning it with `GOCACHE` in `/tmp`.",
        "Fix Bug 2 — `post_commit` should update `base`.",
    ],
)
def test_an_expectation_or_a_proposal_is_no_finding(said: str) -> None:
    assert found(said) == []


def test_what_was_said_between_calls_is_a_finding_until_the_turn_ends() -> None:
    script = Script().user("Fix it.").assistant("`load_fines` fails because `fines.json` is read twice.")
    script.call("Bash", {"command": "ls"}, "a")
    assert findings_of(script.assistant("Now the tests.").call("Bash", {"command": "ls -a"}, "b")) == [
        "(1) `load_fines` fails because `fines.json` is read twice."
    ]
    script.assistant("`save_fines` is called by `close_day`.").assistant("All done here.").user("And the docs?")
    script.assistant("Looking.").call("Bash", {"command": "ls docs"}, "c")
    assert findings_of(script) == ["(7) `save_fines` is called by `close_day`."]


def test_what_was_said_before_a_commit_is_no_finding_after_it() -> None:
    script = Script().user("Fix all.").assistant("`load_fines` reads `fines.json` twice.")
    script.call("Bash", {"command": "git commit -am 'Read once'"}, "1 file changed").assistant("Next one.")
    assert findings_of(script.call("Bash", {"command": "ls"}, "a")) == []


def test_a_finding_leaves_when_a_later_change_is_about_what_it_names() -> None:
    script = Script().user("Fix it.").assistant("`load_fines` never closes the handle in `fines_file`.")
    script.assistant("`close_day` and `open_day` call `load_fines` only once per day.").user("Go on.")
    old = {"file_path": "/srv/a.py", "old_string": "fines_file = load_fines()", "new_string": "with load_fines() as f:"}
    script.call("Edit", old, "updated").assistant("Closed now.").call("Bash", {"command": "ls"}, "a")
    assert findings_of(script) == ["(2) `close_day` and `open_day` call `load_fines` only once per day."]


def test_a_finding_that_names_nothing_in_code_leaves_with_the_next_change() -> None:
    script = Script().user("Fix it.").assistant("The branch is clean, and all tests passed.").user("Go on.")
    script.assistant("Looking now.").call("Bash", {"command": "ls"}, "a")
    assert findings_of(script) == ["(1) The branch is clean, and all tests passed."]
    script.call("Write", {"file_path": "/srv/a.py", "content": "x"}, "created")
    assert findings_of(script) == []


def test_what_the_last_message_of_a_summary_found_stays_in_the_next_one() -> None:
    script = Script().user("Look.").assistant("`load_fines` returns None for an empty list.")
    first = extract_summary(script.turns, max_tokens=900, count=quarter)
    assert "(1): `load_fines` returns None" in first
    before = len(script.turns)
    script.user("Go on.").call("Bash", {"command": "ls"}, "a").assistant("Looking on.")
    script.call("Bash", {"command": "ls -a"}, "b")
    later = script.turns[before:]
    second = extract_summary(later, previous=first, history=script.turns, max_tokens=900, count=quarter)
    assert read_summary(second)[Section.FINDINGS] == ["(1) `load_fines` returns None for an empty list."]
    standing = extract_summary(
        later, standing=first, history=script.turns, first_seq=before, max_tokens=900, count=quarter
    )
    assert Section.FINDINGS not in read_summary(standing)


def test_of_two_diagnoses_the_newer_one_holds() -> None:
    earlier, later = "The issue is that `load` is slow.", "The actual problem is the missing index of `fines`."
    assert standing_findings([earlier, later]) == {later}


def test_a_finding_is_told_with_the_sentences_that_it_needs() -> None:
    said = "\n".join(
        [
            "1. **Nit: no lint mark on `delete_branch`**",
            "   The mark of `delete_branch` was removed by the formatter. Lint passes today. The same mark survived",
            "   in `temporary.go`. Consider adding it.",
            "",
            "- **Deletion**: `not_found()` matches what git prints. Applied in `delete_all`, but not in `delete_one`.",
            "",
            "When `get_columns(alias='status')` is called.",
        ]
    )
    assert found(said) == [
        "Nit: no lint mark on `delete_branch`: The mark of `delete_branch` was removed by the formatter. Lint passes"
        " today. The same mark survived in `temporary.go`.",
        "Deletion: `not_found()` matches what git prints. Applied in `delete_all`, but not in `delete_one`.",
    ]


def test_what_the_agent_says_while_it_thinks_aloud_is_no_finding() -> None:
    script = Script().user("Fix it.").assistant("The issue is in `rename`. `rename` never runs.\n\nWait, it does run.")
    assert findings_of(script.assistant("Look.").call("Bash", {"command": "ls"}, "a")) == []


def test_a_finding_leaves_when_a_later_diff_shows_that_it_was_mended() -> None:
    diff = "diff --git a/push.py b/push.py\n-old\n+def push(): ..."
    script = Script().user("Review it.").call("Bash", {"command": "git diff main"}, diff)
    script.assistant("`should_abort` ignores `small_budget` below 8 MiB.").user("Review it again, please.")
    script.assistant("Reading.").call("Bash", {"command": "git diff main"}, diff)
    assert findings_of(script) == ["(3) `should_abort` ignores `small_budget` below 8 MiB."]
    script.call("Bash", {"command": "git diff main"}, f"{diff}\n+    return should_abort(small_budget)")
    assert findings_of(script) == []


def test_that_something_is_missing_is_no_finding_after_a_change() -> None:
    script = Script().user("Review it.").assistant("I couldn’t find tests of `push` in `push_test.py`.")
    script.user("Add some.")
    script.assistant("Adding.").call("Write", {"file_path": "/srv/other_test.py", "content": "x"}, "created")
    assert findings_of(script) == []


def test_findings_of_turns_long_ended_are_left_to_the_search() -> None:
    script = Script()
    for number in range(4):
        script.user(f"Look at part {number}.").assistant(f"`part_{number}` is called by `all_{number}`.")
    script.user("Go on.").assistant("Looking.").call("Bash", {"command": "ls"}, "a")
    assert findings_of(script) == ["(5) `part_2` is called by `all_2`.", "(7) `part_3` is called by `all_3`."]
