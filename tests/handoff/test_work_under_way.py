"""What a summary says is under way: every request on which the agent has not ended its turn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.support.turns import Script, Section, extract_summary, quarter, read_summary


def summary_of(script: Script, **more: Any) -> str:
    return extract_summary(script.turns, max_tokens=900, count=quarter, words_kept=True, **more)


def under_way(text: str) -> list[str]:
    return [line for line in read_summary(text).get(Section.OPEN, []) if line.startswith("In progress: ")]


def interrupted() -> Script:
    script = Script().user("Which claims are open?").assistant("Three.").user("Verify and fix each of them in a loop.")
    script.assistant("Fixing the first.").call("Bash", {"command": "git commit -am a"}, None)
    script.user("[Request interrupted by user for tool use]").user("Just remove the folder from the commit.")
    return script.assistant("Removing it.").call("Bash", {"command": "git rm -r folder"}, "rm 'folder'")


BOTH = ["In progress: the request in message 6, in the words above, and (2), interrupted for it"]


def test_a_request_that_was_interrupted_for_another_one_is_told_as_interrupted() -> None:
    assert under_way(summary_of(interrupted())) == BOTH


def test_what_codex_writes_if_the_user_stops_the_work_is_an_interruption() -> None:
    script = Script().user("Review the branch.").call("exec_command", {"cmd": "git diff"}, "+ a")
    script.user("<turn_aborted>\nThe user interrupted the previous turn on purpose.\n</turn_aborted>")
    script.turns[-1] = replace(script.turns[-1], kind="host")
    script.user("Now it is the right one.").call("exec_command", {"cmd": "git diff"}, "+ b")
    assert under_way(summary_of(script)) == [
        "In progress: the request in message 4, in the words above, and (0), interrupted for it"
    ]


def test_what_the_user_says_in_the_message_with_the_interruption_is_the_next_request() -> None:
    script = Script().user("Fix each of them in a loop.").call("Bash", {"command": "git commit -am a"}, None)
    script.user("[Request interrupted by user for tool use]", "Just remove the folder from the commit.")
    script.call("Bash", {"command": "git rm -r folder"}, "rm 'folder'")
    assert under_way(summary_of(script)) == [
        "In progress: the request in message 2, in the words above, and (0), interrupted for it"
    ]
    again = (
        Script()
        .user("Fix `load`.")
        .assistant("Fixed.")
        .user("Check the comments.", "[Request interrupted by user]", "Check the comments, and reply to them.")
    )
    again.call("Bash", {"command": "gh pr view"}, "3 comments")
    assert under_way(summary_of(again)) == [
        "In progress: the request in message 2, in the words above: Check the comments, and reply to them."
    ]


def test_a_refusal_without_words_is_not_under_way_if_words_follow_in_the_same_message() -> None:
    refused = "The user doesn't want to proceed with this tool use. The tool use was rejected."
    script = Script().user("Fix each of them in a loop.").call("Bash", {"command": "git rm a"}, refused, is_error=True)
    result, words = script.turns.pop(), Script().user("[Request interrupted by user for tool use]", "Keep a.").turns[0]
    joined = replace(result, role="user", blocks=result.blocks + words.blocks, texts=result.texts + words.texts)
    script.turns.append(joined)
    script.call("Bash", {"command": "git status"}, "clean")
    assert under_way(summary_of(script)) == [
        "In progress: the request in message 2, in the words above, and (0), interrupted for it"
    ]


def test_a_request_that_was_interrupted_last_is_told_as_interrupted_until_the_work_goes_on() -> None:
    refused = "The user doesn't want to proceed with this tool use. The tool use was rejected."
    script = Script().user("Fix each of them.").call("Bash", {"command": "git rm a"}, refused, is_error=True)
    script.user("[Request interrupted by user for tool use]")
    stopped = "the request in message 0, in the words above: Fix each of them."
    assert under_way(summary_of(script)) == []
    assert f"Interrupted by the user: {stopped}" in summary_of(script)
    script.call("Bash", {"command": "git status"}, "clean")
    assert under_way(summary_of(script)) == [f"In progress: {stopped}"]


def test_requests_that_follow_one_another_without_an_interruption_are_all_under_way() -> None:
    script = Script().user("Fix the fines.").call("Bash", {"command": "ls"}, "a.py").user("And the docs.")
    script.call("Bash", {"command": "ls docs"}, "a.md")
    assert under_way(summary_of(script)) == [
        "In progress: the requests in messages 0 and 3, in the words above; on none of them a turn has ended"
    ]


def test_what_is_under_way_is_known_if_the_requests_are_of_an_earlier_summary() -> None:
    first = summary_of(interrupted())
    later = Script().call("Bash", {"command": "ls"}, "a").call("Bash", {"command": "ls -a"}, "b")
    later.turns = [replace(turn, seq=turn.seq + 10) for turn in later.turns]
    assert under_way(summary_of(later, previous=first)) == BOTH
    later.assistant("All are done. The folder is gone.")
    later.turns[-1] = replace(later.turns[-1], seq=14)
    assert under_way(summary_of(later, previous=first)) == []


def test_a_message_without_words_ends_the_turn_if_the_user_speaks_next() -> None:
    script = interrupted().assistant("")
    assert under_way(summary_of(script)) == BOTH
    script.user("And the docs?").call("Bash", {"command": "ls docs"}, "a.md")
    assert under_way(summary_of(script)) == [
        "In progress: the request in message 11, in the words above: And the docs?"
    ]


def test_a_request_before_the_end_of_a_turn_or_that_is_taken_back_is_not_under_way() -> None:
    script = interrupted().user("Never mind, we look at it later. Push it.")
    script.assistant("Pushing.").call("Bash", {"command": "git push"}, "ok")
    assert under_way(summary_of(script)) == [
        "In progress: the request in message 10, in the words above: Never mind, we look at it later. Push it."
    ]
    script.assistant("Pushed.").user("And the docs?").call("Bash", {"command": "ls docs"}, "a.md")
    assert "message 15, in the words above: And the docs?" in under_way(summary_of(script))[0]
