"""`contextstash show`: outputs, summaries and the messages of a session."""

from __future__ import annotations

import json

import pytest

from tests.support.command_line import WINDOW, CommandLine, Orchard, failure_of


def test_a_headline_counts_the_messages_of_a_session(orchard: Orchard) -> None:
    compacted = orchard.json("compact", orchard.session, *WINDOW)
    total = orchard.json("status")["messages"]
    title, session, counts = orchard.run("show", orchard.session).stdout.splitlines()[:3]
    assert (title, session) == ("Reading the orchard", orchard.session)
    assert counts.startswith(f"{total} messages in history ({compacted['messages_summarized']} summarized)")


def test_a_list_shows_what_each_call_reads_and_the_handles_of_pruned_outputs(orchard: Orchard) -> None:
    pruned = orchard.json("prune", orchard.session, "--keep-last", "2")
    lines = [line.split() for line in orchard.run("show", orchard.session).stdout.splitlines()]
    assert ["Read", "orchard/row_00.txt"] in [line[-2:] for line in lines]
    listed = [line[3] for line in lines if line[4:5] == ["[archived]"]]
    assert listed == [output["handle"] for output in pruned["archived"]]


def test_one_message_is_printed_in_full_a_call_with_its_arguments_a_result_with_its_handle(orchard: Orchard) -> None:
    [output] = orchard.json("show", orchard.session, "--message", "2")["handles"]
    shown = orchard.run("show", orchard.session[:8], "--message", "2").stdout
    assert shown.startswith("message 2, user, 2026-03-03 ")
    assert f"[result, {output}]\n{orchard.texts[0]}" in shown
    call = orchard.run("show", orchard.session, "--message", "1").stdout
    assert "[calls Read]\nfile_path: orchard/row_00.txt" in call
    total = orchard.json("status")["messages"]
    assert f"the session has {total}" in failure_of(orchard.run("show", orchard.session, "--message", "999"))


def test_a_pruned_output_is_shown_whole_by_its_handle(orchard: Orchard) -> None:
    pruned = orchard.json("prune", orchard.session, "--keep-last", "2")
    assert len(pruned["archived"]) == len(orchard.texts) - 2
    assert pruned["tokens_after"] < pruned["tokens_before"]
    handle = pruned["archived"][0]["handle"]
    shown = orchard.run("show", handle).stdout
    assert shown in orchard.texts


def test_a_pattern_without_matches_names_the_message_with_the_call_that_a_search_may_have_found(
    orchard: Orchard,
) -> None:
    handle = orchard.json("prune", orchard.session, "--keep-last", "2")["archived"][0]["handle"]
    none = orchard.run("show", handle, "--pattern", "no such words")
    assert f"contextstash show {orchard.session} --first 0" in none.stderr


def test_the_messages_of_a_session_are_shown_in_order(orchard: Orchard) -> None:
    page = orchard.json("show", orchard.session, "--first", "1")
    assert [line["role"] for line in page["messages"]][:3] == ["assistant", "user", "assistant"]
    assert "You must not change" in orchard.run("show", orchard.session).stdout


def test_an_unknown_handle_and_an_unknown_session_say_what_to_do(orchard: Orchard) -> None:
    assert "search" in failure_of(orchard.run("show", "out_nosuch00"))
    assert failure_of(orchard.run("show", "out_cdvh")).startswith("'out_cdvh' is too short, or no handle. Handles look")
    assert "contextstash sessions" in failure_of(orchard.run("status", "nosuchsession"))


def test_an_unknown_summary_is_an_error_that_names_the_command_which_lists_them(orchard: Orchard) -> None:
    assert "contextstash status --events SESSION" in failure_of(orchard.run("show", "sum_unknown"))


@pytest.mark.usefixtures("session")
def test_a_summary_names_the_command_that_shows_its_messages(contextstash: CommandLine) -> None:
    compacted = next(event for event in contextstash.json("status", "--events") if event["kind"] == "compaction")
    database = contextstash.json("sessions")["sessions"][0]["session_id"]
    summary_id = contextstash.json("status")["last_summary"]["summary_id"]
    text = contextstash.run("show", summary_id).stdout
    assert f"contextstash show {database} --first 0" in text
    assert compacted["strategy"] in text


def test_options_that_do_not_apply_are_refused(orchard: Orchard) -> None:
    [output] = orchard.json("show", orchard.session, "--message", "2")["handles"]
    for command, says in (
        (("show", output, "--first", "1"), f"--first does not apply to {output}"),
        (("show", orchard.session, "--pattern", "x"), "--pattern does not apply"),
        (("status", "--calls", "--events"), "not both"),
    ):
        done = orchard.run(*command)
        assert done.returncode == 2
        assert says in done.stderr


def test_a_name_that_utf8_cannot_hold_is_printed_as_json(contextstash: CommandLine) -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {"\ud800": 1}}
    path = contextstash.folder / "half.json"
    path.write_text(json.dumps([{"role": "user", "content": "Go."}, {"role": "assistant", "content": [call]}]))
    contextstash.run("import", path)
    assert contextstash.json("show")["messages"][1]["message"]["content"] == [call]
