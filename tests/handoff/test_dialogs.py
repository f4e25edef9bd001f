"""What the user decided in dialogs: as the user decided it, and in the user's own words."""

from __future__ import annotations

import pytest

from tests.support.turns import Script, extract_summary, quarter
from tests.support.user_words import user_block

REFUSED = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was a file edit, the"
    " new_string was NOT written to the file). To tell you how to proceed, the user said:\n"
)
NOTE = (
    "\n\nNote: The user's next message may contain a correction or preference. Pay close attention — if they explain"
    " what went wrong or how they'd prefer you to work, consider saving that to memory for future sessions."
)
APPROVED = "User has approved your plan. You can now start coding."
PLAN = "# Split the importer\n\n" + "\n".join(f"{step}. Move part {step} into a module" for step in range(1, 90))


def block_of(script: Script, tokens: int = 4_000) -> str:
    span = (0, script.turns[-1].seq)
    return user_block(script.turns, span=span, first_tokens=1_600, tokens=tokens, count=quarter)


@pytest.mark.parametrize("is_error", [True, False])
@pytest.mark.parametrize("tool", ["ExitPlanMode", "exit_plan_mode"])
def test_a_rejected_plan_is_not_approved_and_the_users_words_are_whole(tool: str, is_error: bool) -> None:
    words = "is this really the best way to do it?\n" + "Update the e2e tests first, then fix. " * 20 + "Go slowly."
    script = Script().user("Split it.").call(tool, {"plan": PLAN}, f"{REFUSED}{words}{NOTE}", is_error=is_error)
    block = block_of(script)
    assert "approved" not in block
    assert "is this really the best way to do it?" in block
    assert "then fix. Go slowly.”" in block
    assert "Note: The user's next message" not in block


@pytest.mark.parametrize(
    "output", ["Waiting for the user.", "The plan was not approved.", "Plan rejected. No feedback."]
)
def test_a_plan_counts_as_approved_only_if_the_output_says_so(output: str) -> None:
    assert "approved" not in block_of(Script().user("Split it.").call("ExitPlanMode", {"plan": PLAN}, output))


def test_a_clients_text_in_place_of_an_answer_is_not_the_users() -> None:
    text = (
        "The user wants to clarify these questions.\n    This means they may have additional information.\n\n"
        '    Questions asked:\n- "Which store?"\n  Answer: sqlite\n- "Which port?"\n  (No answer provided)'
    )
    script = Script().user("Add a cache.").call("AskUserQuestion", {"questions": []}, REFUSED + text + NOTE)
    assert '- (2) The user refused AskUserQuestion: “"Which store?"=sqlite”' in block_of(script)
    silent = Script().user("Add a cache.").call("AskUserQuestion", {}, REFUSED + text.split("\n\n", 1)[0] + NOTE)
    assert block_of(silent).endswith("- (2) The user refused AskUserQuestion")


@pytest.mark.parametrize("said", ["User has answered your questions", "Your questions have been answered"])
def test_a_long_answer_in_a_dialog_is_whole(said: str) -> None:
    answer = "Keep the old importer until March, " * 40 + "then delete it"
    output = f'{said}: "When?"="{answer}". You can now continue with these answers.'
    assert f'"When?"="{answer}"' in block_of(Script().user("Plan.").call("AskUserQuestion", {}, output))


def test_an_approved_plan_is_shown_in_whole_lines_and_the_block_says_where_the_rest_is() -> None:
    block = block_of(Script().user("Split it.").call("ExitPlanMode", {"plan": PLAN}, APPROVED))
    shown = [line.strip() for line in block.split("\n") if "Move part" in line]
    assert shown == PLAN.split("\n")[2 : 2 + len(shown)]
    assert f"[left out: {89 - len(shown)} lines of the plan approved in message 2]" in block
    assert "search_history finds the whole of what is shortened." in block.split("\n")[0]
    assert "The user approved the agent's plan: # Split the importer" in block


def test_the_plan_as_the_user_changed_it_is_shown() -> None:
    output = f"{APPROVED}\n\n## Approved Plan (edited by user):\n# Split it in two\n\nLeave the parser alone."
    block = block_of(Script().user("Split it.").call("ExitPlanMode", {"plan": PLAN}, output))
    assert "plan: # Split it in two" in block
    assert "Leave the parser alone." in block


def test_of_a_superseded_plan_one_line_is_left() -> None:
    script = Script().user("Split it.").call("ExitPlanMode", {"plan": PLAN}, APPROVED)
    script.call("ExitPlanMode", {"plan": PLAN.replace("part", "piece").replace("Split", "Cut")}, APPROVED)
    lines = block_of(script).split("\n")
    [old] = [line for line in lines if "# Split the importer" in line]
    assert old.endswith("[left out: the rest of it; the plan in (4) replaces it]")
    assert not any("Move part" in line for line in lines)
    assert any("Move piece" in line for line in lines)


def test_what_the_user_decided_in_a_dialog_after_the_last_request_is_in_progress() -> None:
    script = Script().user("Split it.").call("ExitPlanMode", {"plan": PLAN}, APPROVED)
    script.call("Read", {"file_path": "/srv/importer.py"}, "import polars")
    assert "In progress: The user approved the agent's plan: # Split the importer" in extract_summary(
        script.turns, max_tokens=1_000, count=quarter
    )


def test_an_approval_is_in_progress_if_the_request_is_told_by_an_earlier_summary() -> None:
    first = extract_summary(
        Script().user("Split it.").call("Read", {"file_path": "/srv/importer.py"}, "import polars").turns,
        max_tokens=1_000, count=quarter, words_kept=True,
    )  # fmt: skip
    script = Script().call("ExitPlanMode", {"plan": PLAN}, APPROVED).call("Read", {"file_path": "/srv/a.py"}, "x")
    second = extract_summary(script.turns, previous=first, max_tokens=1_000, count=quarter, words_kept=True)
    assert "In progress: the decision in message 1, above" in second
    assert "the request in message" not in second
    assert "ExitPlanMode" not in second


OPTIONS = """**Option 1: Handle the errors**
Change each call site.

**Option 2: Typed fields**
Check them once when they are read.

Option 2 is cleaner. Which approach do you prefer?"""


@pytest.mark.parametrize("said", ["let's try 2=", "2", "the second one", "option 2, please"])
def test_a_reply_that_names_an_option_is_told_with_that_option(said: str) -> None:
    block = block_of(Script().user("Make it safe.").assistant(OPTIONS).user(said))
    assert "2 is: Option 2: Typed fields Check them once when they are read.]" in block


def test_a_newer_approved_plan_withdraws_the_older_one() -> None:
    approved = "User has approved your plan. You can now start coding."
    script = Script().user("Split the importer.").call("ExitPlanMode", {"plan": "# By time\n1. Filter"}, approved)
    script.call("ExitPlanMode", {"plan": "# By position\n1. Count"}, approved)
    assert "Withdrawn or changed by the user: (2) by (4)." in block_of(script)
