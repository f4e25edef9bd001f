"""Looking at a session and changing it from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import ANSI, CommandLine, failure_of, write_transcript

WINDOW = ("--set", "window=32000")


class Orchard:
    """A recorded session, its command line, and the texts of its outputs."""

    def __init__(self, folder: Path) -> None:
        self.run = CommandLine(folder).run
        self.json = CommandLine(folder).json
        self.texts = write_transcript(folder / "session.jsonl")
        [report] = self.json("import", folder / "session.jsonl")
        self.session: str = report["session_id"]


@pytest.fixture
def orchard(tmp_path: Path) -> Orchard:
    return Orchard(tmp_path)


def test_status_says_how_full_the_session_is(orchard: Orchard) -> None:
    status = orchard.json("status", *WINDOW)
    estimate = status["estimate"]
    assert status["session_id"] == orchard.session
    assert estimate["window"] == 32_000
    shown = orchard.run("status", orchard.session[:8], *WINDOW).stdout
    assert f"{estimate['tokens']:,} of {estimate['usable']:,} usable tokens" in shown
    trigger = estimate["tokens_trigger"]
    assert f"{trigger['value']:,} / {trigger['threshold']:,}" in shown
    assert f"{status['messages']} messages in history (0 summarized)" in shown
    assert ANSI not in shown
    assert all(line == line.rstrip() for line in shown.splitlines())


def test_status_tells_of_the_last_summary(orchard: Orchard) -> None:
    compacted = orchard.json("compact", orchard.session, *WINDOW)
    shown = orchard.run("status", orchard.session, *WINDOW).stdout
    assert f"({compacted['messages_summarized']} summarized)" in shown
    assert f"Last summary: {compacted['messages_summarized']} messages -> " in shown
    assert compacted["summary_id"] in shown
    assert "Saved" not in shown  # the client sends its own history


def test_status_says_what_the_next_message_triggers(orchard: Orchard) -> None:
    messages = orchard.json("status")["messages"]
    near = ("--set", f"messages_at={messages + 1}")
    assert f"Will trigger on the next message: messages {messages + 1} / {messages + 1}" in (
        orchard.run("status", *near).stdout
    )
    assert "Will trigger" not in orchard.run("status", "--set", f"messages_at={messages + 9}").stdout


def test_watching_in_a_pipe_looks_once(orchard: Orchard) -> None:
    assert "usable tokens" in orchard.run("status", "--watch").stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_and_finds_sessions_and_handles(orchard: Orchard, shell: str) -> None:
    assert "_CONTEXTSTASH_COMPLETE" in orchard.run("completion", shell).stdout
    handle = orchard.json("prune", orchard.session, "--keep-last", "2")["archived"][0]["handle"]
    for begun, whole in ((orchard.session[:4], orchard.session), (handle[:6], handle)):
        asked = {
            "_CONTEXTSTASH_COMPLETE": f"{shell}_complete",
            "COMP_WORDS": f"contextstash show {begun}",
            "COMP_CWORD": begun if shell == "fish" else "2",
        }
        assert whole in orchard.run(environment=asked).stdout


def test_the_messages_of_a_session_are_counted_above_them(orchard: Orchard) -> None:
    compacted = orchard.json("compact", orchard.session, *WINDOW)
    total = orchard.json("status")["messages"]
    first = orchard.run("show", orchard.session).stdout.splitlines()[0]
    assert first.startswith(f"{total} messages in history ({compacted['messages_summarized']} summarized)")


def test_sessions_are_listed_with_their_ids_uncut_and_no_colour_in_a_pipe(orchard: Orchard) -> None:
    output = orchard.run("sessions").stdout
    assert orchard.session in output
    assert ANSI not in output


def test_a_pruned_output_is_shown_whole_by_its_handle(orchard: Orchard) -> None:
    pruned = orchard.json("prune", orchard.session, "--keep-last", "2")
    assert len(pruned["archived"]) == len(orchard.texts) - 2
    assert pruned["tokens_after"] < pruned["tokens_before"]
    handle = pruned["archived"][0]["handle"]
    shown = orchard.run("show", handle).stdout
    assert shown in orchard.texts


def test_search_finds_an_output_by_a_line_in_it(orchard: Orchard) -> None:
    [hit, *_] = orchard.json("search", "tree 733")["hits"]
    shown = orchard.run("show", hit["handle"]).stdout
    assert "tree 733:" in shown


def test_a_dry_run_changes_nothing(orchard: Orchard) -> None:
    before = orchard.json("status")["estimate"]["tokens"]
    assert orchard.json("prune", orchard.session, "--keep-last", "0", "--dry-run")["tokens_saved"] > 0
    assert orchard.json("status")["estimate"]["tokens"] == before


def test_a_compaction_is_undone_by_restoring_its_summary(orchard: Orchard) -> None:
    compacted = orchard.json("compact", orchard.session, *WINDOW)
    assert compacted["tokens_after"] < compacted["tokens_before"]
    restored = orchard.json("restore", compacted["summary_id"], "--session", orchard.session)
    assert restored["tokens_after"] == compacted["tokens_before"]


def test_a_session_s_messages_are_shown_in_order(orchard: Orchard) -> None:
    page = orchard.json("show", orchard.session, "--limit", "3")
    assert [line["role"] for line in page["messages"]] == ["user", "assistant", "user"]
    assert page["next_seq"] == 3
    assert "You must not change" in orchard.run("show", orchard.session).stdout


def test_a_session_is_deleted_only_when_that_is_confirmed(orchard: Orchard) -> None:
    refused = orchard.run("delete", orchard.session, typed="n\n")
    assert refused.returncode != 0
    assert orchard.json("status")["session_id"] == orchard.session
    assert orchard.json("delete", orchard.session, "--yes")["deleted"] is True
    assert "no session" in failure_of(orchard.run("status"))


def test_an_unknown_handle_and_an_unknown_session_say_what_to_do(orchard: Orchard) -> None:
    assert "search" in failure_of(orchard.run("show", "out_nosuch00"))
    assert "contextstash sessions" in failure_of(orchard.run("status", "nosuchsession"))


def test_several_words_are_searched_as_they_are_typed(orchard: Orchard) -> None:
    assert orchard.run("search", "tree", "733").stdout == orchard.run("search", "tree 733").stdout != ""


def test_where_nobody_can_be_asked_nothing_is_deleted(orchard: Orchard) -> None:
    assert "--yes" in failure_of(orchard.run("delete", orchard.session))
    assert orchard.json("status")["session_id"] == orchard.session


def test_a_summary_of_another_session_is_asked_for_by_that_session(orchard: Orchard) -> None:
    assert "--session ID" in failure_of(orchard.run("show", "sum_unknown"))
