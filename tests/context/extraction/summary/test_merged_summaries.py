"""Merged summaries: the newest evidence is right, merging again changes nothing, and the limit holds."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from contextstash.context.extraction.summary.extractive_summary import extract_summary
from contextstash.context.extraction.summary_format import Section, read_summary
from contextstash.context.extraction.user.valid_decisions import valid
from tests.support.turns import Script, laws, quarter


def summary(script: Script, most: int = 2_000, *, previous: str | None = None, standing: str | None = None) -> str:
    return extract_summary(script.turns, previous=previous, standing=standing, max_tokens=most, count=quarter)


def merge(*summaries: str, most: int = 4_000, superseded: bool = False) -> str:
    return extract_summary([], previous="\n\n".join(summaries), superseded=superseded, max_tokens=most, count=quarter)


def todo(*entries: tuple[str, str]) -> dict[str, list[dict[str, str]]]:
    return {"todos": [{"content": text, "status": status} for text, status in entries]}


def early() -> Script:
    return (
        Script()
        .user("Port the reports to polars. Use tabs in new code.")
        .call("TodoWrite", todo(("Read the reports", "in_progress"), ("Port them", "pending")), "ok")
        .call("Bash", {"command": "pytest tests/test_reports.py"}, "1 failed, 3 passed in 0.2s\n", is_error=True)
        .call("Bash", {"command": "curl localhost:1"}, "curl: (7) Failed to connect", is_error=True)
        .assistant("I have read half of the reports. Next: port the first one.")
    )


def late() -> Script:
    return (
        Script()
        .user("Actually, use spaces instead of tabs.")
        .call("TodoWrite", todo(("Read the reports", "completed"), ("Port them", "in_progress")), "ok")
        .call("Bash", {"command": "pytest tests/test_reports.py"}, "4 passed in 0.2s\n")
        .assistant("The first report is ported, and its tests pass.")
    )


def test_of_merged_summaries_only_the_newest_state_and_plan_are_kept() -> None:
    sections = read_summary(merge(summary(early()), summary(late())))
    said = "The assistant's last message (5): The first report is ported, and its tests pass."
    assert sections[Section.STATE][0] == said
    assert "half of the reports" not in str(sections[Section.STATE])
    assert sections[Section.OPEN] == ["[~] Port them (in progress)", "[x] done: Read the reports"]


def test_an_error_that_was_fixed_leaves_with_the_next_summary() -> None:
    first = summary(early())
    assert Section.ERRORS in read_summary(first)
    assert Section.ERRORS not in read_summary(summary(late(), previous=first))
    told = "## Errors\n- resolved: `pytest` — 1 failed (resolved after changes to a.py)"  # as earlier versions wrote
    assert Section.ERRORS not in read_summary(summary(late(), previous=told))


def test_of_older_errors_only_tests_and_builds_that_still_fail_are_kept() -> None:
    later = Script().call("Bash", {"command": "ls"}, "a.py").assistant("Listed.")
    (line,) = read_summary(summary(later, previous=summary(early())))[Section.ERRORS]
    assert re.match(r"failed at \d+: `pytest tests/test_reports.py`", line)


def test_a_decision_that_was_revised_leaves() -> None:
    text = merge(summary(early()), summary(late()))
    assert "Use tabs in new code." not in read_summary(text).get(Section.DECISIONS, ())
    asked = Script().user("Start.").assistant("Which port should it use?")
    first = summary(asked.user("8080"))
    second = summary(Script().user("On.").assistant("Which port should it use?").user("no, 9090"), previous=first)
    assert read_summary(second)[Section.DECISIONS] == ["Asked “Which port should it use?” the user answered “no, 9090”"]


def test_decisions_on_different_things_stay_beside_each_other() -> None:
    lines = ["Never touch migrations.", "Always use f-strings.", "Never touch the lock file.", "Use tabs instead."]
    assert valid(lines) == lines


def test_a_plan_stands_until_there_is_another() -> None:
    busy = Script().call("Bash", {"command": "ls"}, "a.py").assistant("Listed the files.")
    for text in (summary(busy, previous=summary(early())), summary(busy, standing=summary(early()))):
        sections = read_summary(text)
        assert sections[Section.OPEN][:2] == ["[~] Read the reports (in progress)", "[ ] Port them"]
        assert sections[Section.STATE][0] == "The assistant's last message (2): Listed the files."
    assert read_summary(merge(summary(early()), summary(busy)))[Section.OPEN][:2] == [
        "[~] Read the reports (in progress)",
        "[ ] Port them",
    ]


def test_a_summary_beside_an_earlier_one_does_not_repeat_it() -> None:
    text = summary(Script().user("Now the invoices."), standing=summary(early()))
    assert "Port the reports" not in text


def test_a_summary_before_a_newer_one_does_not_say_how_things_stand() -> None:
    sections = read_summary(merge(summary(early()), summary(late()), superseded=True))
    assert not {Section.STATE, Section.OPEN, Section.ERRORS} & set(sections)
    assert sections[Section.TASK][0] == "Port the reports to polars. Use tabs in new code."


def test_a_task_is_updated_by_its_number_across_summaries() -> None:
    first = Script().user("Go.")
    for number, subject in enumerate(("Parse dates", "Write docs", "Tag it"), 1):
        first.call("TaskCreate", {"subject": subject}, f"Task #{number} created successfully")
    later = Script().call("TaskUpdate", {"taskId": "1", "status": "completed"}, "Updated task #1")
    later.call("TaskUpdate", {"taskId": "2", "status": "in_progress"}, "Updated task #2")
    assert read_summary(summary(later, previous=summary(first)))[Section.OPEN][:3] == [
        "[~] #2: Write docs (in progress)",
        "[ ] #3: Tag it",
        "[x] done: #1: Parse dates",
    ]


def test_the_whole_plan_is_shown_even_in_a_short_summary() -> None:
    entries = [(f"Step {number}: port report {number}", "pending") for number in range(12)]
    script = Script().user("Port all the reports, please, and mind the dates. " * 40)
    for number in range(40):
        script.assistant(f"The report part_{number} was changed because load_{number} returned None.")
    script.call("TodoWrite", todo(*entries), "ok").assistant("Planned.")
    assert read_summary(summary(script, 600))[Section.OPEN] == [f"[ ] {text}" for text, _ in entries]


def test_the_last_message_stays_if_the_newer_messages_have_no_text() -> None:
    silent = Script().call("Bash", {"command": "ls"}, "a.py")
    state = read_summary(summary(silent, previous=summary(early())))[Section.STATE]
    assert state[0].startswith("The assistant's last message (7): I have read half of the reports.")
    assert state[-1].startswith("(1) ran `ls`")


def test_the_first_request_stays_first_if_it_is_repeated() -> None:
    first = Script().user("Port the reports.").user("Mind the dates.").assistant("Yes.")
    again = Script().user("Port the reports.").assistant("On it.")
    tasks = read_summary(summary(again, previous=summary(first)))[Section.TASK]
    assert tasks == ["Port the reports.", "Mind the dates."]


def test_a_short_first_line_of_the_last_message_is_shown_with_the_next() -> None:
    script = Script().user("Go.").assistant("Here is the result:\n\n1. The parser is done.\n2. The docs are not.")
    state = read_summary(summary(script))[Section.STATE][0]
    assert state.split("\n")[0].startswith(
        "The assistant's last message (1): Here is the result: 1. The parser is done. 2. The docs"
    )


def test_files_of_several_summaries_keep_their_own_base_folder() -> None:
    def edits(folder: str) -> Script:
        script = Script().user("Go.")
        for name in ("a", "b", "c"):
            script.call("Edit", {"file_path": f"{folder}/{name}.py", "old_string": "", "new_string": "x"}, "ok")
        return script

    lines = read_summary(merge(summary(edits("/srv/one/src")), summary(edits("/opt/two/lib"))))[Section.FILES]
    shown = "\n".join(lines)
    assert "/srv/one/src/a.py" in shown
    assert "/opt/two/lib/a.py" in shown


Drawn = list[tuple[str, list[tuple[str, str]], bool, str]]

names = st.sampled_from(["parse dates", "write docs", "tag it", "fix fines", "port reports"])
plans = st.lists(st.tuples(names, st.sampled_from(["pending", "in_progress", "completed"])), max_size=4)
sessions = st.lists(st.tuples(names, plans, st.booleans(), names), min_size=1, max_size=4)


def script_of(drawn: Drawn, seed: int) -> Script:
    script = Script()
    for number, (request, plan, fails, said) in enumerate(drawn):
        script.user(f"Please {request} in part {seed}.{number}.")
        script.call("TodoWrite", todo(*dict(plan).items()), "ok")
        output = "1 failed, 3 passed in 0.2s\n" if fails else "4 passed in 0.2s\n"
        script.call("Bash", {"command": f"pytest tests/{request.split()[0]}"}, output, is_error=fails)
        script.assistant(f"I did {said} in part {seed}.{number}.")
    return script


@laws
@given(st.lists(sessions, min_size=2, max_size=4))
def test_the_newest_evidence_wins_however_summaries_are_merged(drawn: list[Drawn]) -> None:
    scripts = [script_of(session, seed) for seed, session in enumerate(drawn)]
    singles = [summary(script) for script in scripts]
    stepwise = ""
    for script in scripts:
        stepwise = summary(script, previous=stepwise)
    newest = read_summary(singles[-1])
    for text in (merge(*singles), merge(merge(*singles[:-1]), singles[-1]), stepwise):
        sections = read_summary(text)
        assert sections[Section.STATE] == newest[Section.STATE]
        assert sections.get(Section.OPEN) == newest.get(Section.OPEN) or not newest.get(Section.OPEN)
        assert text.count("## Open items") <= 1


@laws
@given(st.lists(sessions, min_size=1, max_size=3), st.integers(60, 800))
def test_merging_again_changes_nothing_and_the_limit_holds(drawn: list[Drawn], most: int) -> None:
    texts = [summary(script_of(session, seed)) for seed, session in enumerate(drawn)]
    whole = merge(*texts)
    assert merge(whole) == whole
    short = merge(*texts, most=most)
    assert quarter(short) <= most
    assert quarter(summary(script_of(drawn[-1], 9), most, previous=whole)) <= most
