"""`contextstash status`: how full a session's context is."""

from __future__ import annotations

from pathlib import Path

from contextstash import open_stash_sync
from tests.support.command_line import ANSI, CommandLine
from tests.support.orchard import WINDOW, Orchard
from tests.support.servers import small_session


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


def test_status_names_the_last_summary(orchard: Orchard) -> None:
    compacted = orchard.json("compact", orchard.session, *WINDOW)
    shown = orchard.run("status", orchard.session, *WINDOW).stdout
    assert f"({compacted['messages_summarized']} summarized)" in shown
    assert f"Last summary: {compacted['messages_summarized']} messages -> " in shown
    assert compacted["summary_id"] in shown
    assert "Saved" not in shown  # unknown: the client sends its own history


def test_status_says_that_a_compaction_is_due(tmp_path: Path) -> None:
    command_line = CommandLine(tmp_path)
    with open_stash_sync(command_line.database) as stash:
        stash.session("loop").request(small_session())
    messages = command_line.json("status", "loop")["messages"]  # the system prompt is one of them, and does not count
    shown = command_line.run("status", "loop", "--set", f"messages_at={messages}").stdout
    assert f"Auto-compaction is due: messages {messages} / {messages}" in shown
    assert "Auto-compaction" not in command_line.run("status", "loop", "--set", f"messages_at={messages + 9}").stdout


def test_nothing_is_due_if_only_the_client_can_compact_its_window(orchard: Orchard) -> None:
    messages = orchard.json("status")["messages"]
    assert "Auto-compaction" not in orchard.run("status", "--set", f"messages_at={messages + 1}").stdout


def test_watch_in_a_pipe_prints_once(orchard: Orchard) -> None:
    assert "usable tokens" in orchard.run("status", "--watch").stdout
