"""What a session holds must not control the terminal on which it is shown."""

from __future__ import annotations

import json
import re
import sys

import pytest

from tests.support.command_line import CommandLine, printed_on_terminal

CLIPBOARD = "\x1b]52;c;cm0gLXJmIH4=\x07"
LINK = "\x1b]8;;https://evil.example\x1b\\click\x1b]8;;\x1b\\"
HOSTILE = f"{CLIPBOARD}\x1b]0;owned\x07{LINK}\x1b[2J\x1b[8mhidden \x9b2J \u202egnihtemos\rover plum"

OWN_STYLES = re.compile(rb"\x1b\[[0-9;]*m|\x1b\[\?25[hl]|\x1b\[2?K|\x1b\[1?A|\r(?=\x1b|Compacting)")
"""Colours, and what a progress bar does with its line."""


@pytest.fixture
def hostile(contextstash: CommandLine) -> CommandLine:
    """A session in which everything that is recorded holds sequences for terminals."""
    call = {"type": "tool_use", "id": f"toolu_1{HOSTILE}", "name": f"bash{HOSTILE}", "input": {"command": HOSTILE}}
    output = {"type": "tool_result", "tool_use_id": f"toolu_1{HOSTILE}", "content": f"{HOSTILE}\n" * 400}
    usage = {"input_tokens": 1_000, "output_tokens": 40}
    messages = [
        {"role": "user", "content": f"Find the plum. {HOSTILE}"},
        {"role": "assistant", "model": f"claude{HOSTILE}", "content": [call], "usage": usage},
        {"role": "user", "content": [output]},
        {"role": "assistant", "model": "claude-haiku-4-5", "content": f"Found. {HOSTILE}"},
        {"role": "user", "content": "And the pear?"},
        {"role": "assistant", "model": "claude-haiku-4-5", "content": "Gone.", "usage": usage},
    ]
    path = contextstash.folder / "hostile.json"
    path.write_text(json.dumps(messages))
    assert contextstash.run("import", path).returncode == 0
    return contextstash


def handle_of(line: CommandLine) -> str:
    messages = line.json("show", session_of(line))["messages"]
    return next(str(handle) for message in messages for handle in message.get("handles") or ())


def session_of(line: CommandLine) -> str:
    return str(line.json("sessions")["sessions"][0]["session_id"])


def commands(line: CommandLine) -> list[tuple[str, ...]]:
    handle, session = handle_of(line), session_of(line)
    shows = [
        ("show", handle), ("show", handle, "--pattern", "plum"), ("show", session),
        ("show", session, "--message", "0"), ("show", session, "--message", "1"), ("show", session, "--message", "2"),
    ]  # fmt: skip
    others = [("sessions",), ("status",), ("status", "--events"), ("status", "--calls")]
    searches = [("search", "plum"), ("search", "plum", "--since", "2999-01-01")]
    changes = [("pin", handle, "--session", session), ("compact", session, "--strategy", "extractive")]
    as_json = ((*each, "--json") for each in (shows[0], shows[3], searches[0]))
    return [*shows, *others, *searches, *as_json, *changes, ("status", "--events")]


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_no_command_sends_a_recorded_sequence_to_a_terminal(hostile: CommandLine) -> None:
    seen = b""
    for command in commands(hostile):
        printed = OWN_STYLES.sub(b"", printed_on_terminal(hostile.database, *command))
        text = printed.decode().replace("\r\n", "\n")
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text), command
        seen += printed
    assert "␛]52;c;".encode() in seen


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_a_pipe_gets_the_output_as_it_was_recorded(hostile: CommandLine) -> None:
    handle = handle_of(hostile)
    assert CLIPBOARD in hostile.run("show", handle).stdout
    assert CLIPBOARD.encode() not in printed_on_terminal(hostile.database, "show", handle)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_an_import_does_not_send_names_and_roles_of_files_to_a_terminal(contextstash: CommandLine) -> None:
    folder = contextstash.folder / "repo"
    folder.mkdir()
    said = {"type": "user", "sessionId": "s", "timestamp": "2026-11-20T10:00:00Z"}
    bad = {**said, "uuid": "b", "message": {"role": f"user{HOSTILE}", "content": "x"}}
    good = {**said, "uuid": "a", "message": {"role": "user", "content": "Find the plum."}}
    name = "a\x1b]0;owned\x07\x1b[41m\u202e[bold]gpj.jsonl"
    (folder / name).write_text(f"{json.dumps(good)}\n{json.dumps(bad)}\n")
    printed = OWN_STYLES.sub(b"", printed_on_terminal(contextstash.database, "import", str(folder)))
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", printed.decode().replace("\r\n", "\n"))
