"""What a summary says is under way: every request on which the agent has not ended its turn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.support.turns import Script, Section, extract_summary, quarter, read_summary

STOPPED = "[Request interrupted by user for tool use]"
REFUSED = "The user doesn't want to proceed with this tool use. The tool use was rejected."


def summary_of(script: Script, **more: Any) -> str:
    return extract_summary(script.turns, max_tokens=900, count=quarter, words_kept=True, **more)


def under_way(text: str) -> list[str]:
    lines = [line.partition(": ") for line in read_summary(text).get(Section.OPEN, [])]
    said = [told.removeprefix("the request in ") for how, _, told in lines if how == "In progress"]
    return [told.replace(", in the words above", "") for told in said]


def run(script: Script, command: str = "git status", output: str | None = "clean") -> Script:
    return script.call("Bash", {"command": command}, output)


def interrupted() -> Script:
    script = Script().user("Which claims are open?").assistant("Three.").user("Verify and fix each of them in a loop.")
    run(script.assistant("Fixing the first."), "git commit -am a", None)
    script.user(STOPPED).user("Just remove the folder.")
    return run(script.assistant("Removing it."), "git rm -r folder", "rm 'folder'")


def both(older: str, newest: int, words: str) -> list[str]:
    return [f"{older} and ({newest}), on which no turn has ended; the newest may be done: {words}"]


BOTH = both("(2) (interrupted)", 6, "Just remove the folder.")


def test_a_request_that_was_interrupted_for_another_one_is_told_as_interrupted() -> None:
    assert under_way(summary_of(interrupted())) == BOTH
    codex = run(Script().user("Review the branch."))
    codex.user("<turn_aborted>\nThe user interrupted the previous turn on purpose.\n</turn_aborted>")
    codex.turns[-1] = replace(codex.turns[-1], kind="host")
    told = under_way(summary_of(run(codex.user("Now it is the right one."))))
    assert told == both("(0) (interrupted)", 4, "Now it is the right one.")


def test_what_the_user_says_in_the_message_with_the_interruption_is_the_next_request() -> None:
    script = run(Script().user("Fix each of them in a loop."), "git commit -am a", None)
    script.user(STOPPED, "Just remove the folder.")
    told = under_way(summary_of(run(script)))
    assert told == both("(0) (interrupted)", 2, "Just remove the folder.")
    again = Script().user("Fix `load`.").assistant("Fixed.")
    again.user("Check the comments.", STOPPED, "Check the comments, and reply to them.")
    assert under_way(summary_of(run(again))) == ["message 2: Check the comments, and reply to them."]


def test_a_refusal_without_words_is_not_under_way_if_words_follow_in_the_same_message() -> None:
    script = Script().user("Fix each of them in a loop.").call("Bash", {"command": "git rm a"}, REFUSED, is_error=True)
    result, words = script.turns.pop(), Script().user(STOPPED, "Keep a.").turns[0]
    joined = replace(result, role="user", blocks=result.blocks + words.blocks, texts=result.texts + words.texts)
    script.turns.append(joined)
    told = under_way(summary_of(run(script)))
    assert told == both("(0) (interrupted)", 2, "Keep a.")


def test_a_request_that_was_interrupted_last_is_told_as_interrupted_until_the_work_goes_on() -> None:
    script = Script().user("Fix each of them.").call("Bash", {"command": "git rm a"}, REFUSED, is_error=True)
    script.user(STOPPED)
    assert under_way(summary_of(script)) == []
    assert "Interrupted by the user: the request in message 0, in the words above: Fix" in summary_of(script)
    assert under_way(summary_of(run(script))) == ["message 0: Fix each of them."]


def test_requests_that_follow_one_another_without_an_interruption_are_all_under_way() -> None:
    script = run(run(Script().user("Fix the fines.")).user("And the docs."))
    assert under_way(summary_of(script)) == both("(0)", 3, "And the docs.")


def test_a_message_without_words_ends_the_turn_if_the_user_speaks_next() -> None:
    script = interrupted().assistant("")
    assert under_way(summary_of(script)) == BOTH
    assert under_way(summary_of(run(script.user("And the docs?")))) == ["message 11: And the docs?"]


def test_a_request_before_the_end_of_a_turn_or_that_is_taken_back_is_not_under_way() -> None:
    script = run(interrupted().user("Never mind, we look at it later. Push it.").assistant("Pushing."))
    assert under_way(summary_of(script)) == ["message 10: Never mind, we look at it later. Push it."]
    assert under_way(summary_of(run(script.assistant("Pushed.").user("Thanks.")))) == ["message 15: Thanks."]


def test_a_message_that_ends_with_what_comes_next_is_not_the_end_of_its_turn() -> None:
    said = "I'm making a small patch: the missing fields. After that I'll run the installer against the checkout again."
    assert under_way(summary_of(Script().user("Fix the installer.").assistant(said))) == [
        "message 0: Fix the installer."
    ]
    said = "I'm editing the decoder now. The change is small: it takes the head as it is."
    assert under_way(summary_of(Script().user("Yes, do this.").assistant(said))) == ["message 0: Yes, do this."]
    for said in ('{"findings": [], "correct": true}', "It is done. I'll add a test if you want me to.",
                 "All tests pass. Let me know how it goes."):  # fmt: skip
        assert under_way(summary_of(Script().user("Review it.").assistant(said))) == []
