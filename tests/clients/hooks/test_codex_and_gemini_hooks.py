"""Sessions of Codex CLI and Gemini CLI through their hooks: outputs replaced, compactions survived."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.client_files import write_session
from tests.support.command_line import CommandLine

LARGE = "\n".join(f"{number}: compiling part {number}" for number in range(4_000)) + "\nfatal error: disk full"
SESSION = "01a1fc8f-def1-7cd2-aff0-79da6819288b"


def fire(contextstash: CommandLine, client: str, event: str, **fields: Any) -> Any:
    """The hook's response to an event, None if it has none."""
    named = {"session_id": SESSION, "hook_event_name": event, "cwd": str(contextstash.folder), **fields}
    done = contextstash.run("hook", client, typed=json.dumps(named))
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout) if done.stdout else None


def original(contextstash: CommandLine, shown: str) -> str:
    found = re.search(r"out_[0-9a-z]+", shown)
    assert found
    return contextstash.run("show", found.group()).stdout


def talk(client: str, folder: Path, *texts: str) -> Path:
    return write_session(client, folder, SESSION, folder, *texts, reply="Noted.")


def test_codex_shows_the_reason_of_a_block_in_the_place_of_a_large_output(contextstash: CommandLine) -> None:
    answer = fire(
        contextstash, "codex", "PostToolUse", tool_name="Bash", tool_input={"command": "make"}, tool_response=LARGE
    )
    assert answer["decision"] == "block"
    assert len(answer["reason"]) <= 10_000
    assert "fatal error: disk full" in answer["reason"]
    assert original(contextstash, answer["reason"]).rstrip("\n") == LARGE


def test_gemini_shows_the_reason_of_a_denial_in_the_place_of_a_large_output(contextstash: CommandLine) -> None:
    response = {"llmContent": [{"text": LARGE}], "returnDisplay": LARGE}
    answer = fire(
        contextstash, "gemini", "AfterTool", tool_name="run_shell_command", tool_input={}, tool_response=response
    )
    assert answer["decision"] == "deny"
    assert answer["reason"].startswith("This is no error")
    assert len(answer["reason"]) <= 10_200
    assert original(contextstash, answer["reason"]).rstrip("\n") == LARGE


@pytest.mark.parametrize(
    ("client", "event", "tool", "response"),
    [
        ("codex", "PostToolUse", "Bash", "short"),
        ("codex", "PostToolUse", "mcp__contextstash__get_archived_output", LARGE),
        ("codex", "PostToolUse", "view", {"content": [{"type": "image", "data": LARGE}]}),
        ("codex", "PostToolUse", "mcp__x__y", {"content": [{"type": "text", "text": LARGE}], "isError": True}),
        ("gemini", "AfterTool", "read_file", {"llmContent": "short"}),
        ("gemini", "AfterTool", "mcp_contextstash_get_archived_output", {"llmContent": LARGE}),
        ("gemini", "AfterTool", "x", {"llmContent": LARGE, "error": {"message": "failed"}}),
        ("gemini", "AfterTool", "x", {"llmContent": [{"text": LARGE}, {"inlineData": {"data": "x"}}]}),
        ("gemini", "AfterTool", "x", None),
    ],
)
def test_what_is_short_ours_an_error_or_no_text_is_left_alone(
    contextstash: CommandLine, client: str, event: str, tool: str, response: Any
) -> None:
    assert fire(contextstash, client, event, tool_name=tool, tool_input={}, tool_response=response) is None


def test_an_output_that_a_script_of_codex_asked_for_goes_to_the_script(contextstash: CommandLine) -> None:
    call = {"tool_name": "Bash", "tool_input": {"command": "make"}, "tool_use_id": "exec-9d411b2e"}
    assert fire(contextstash, "codex", "PostToolUse", **call, tool_response=LARGE) is None


TOLD = [f"Step {number}: the port must stay 5433 in config/db_{number}.toml." for number in range(30)]


def test_codex_is_told_of_a_compacted_session_when_it_goes_on(contextstash: CommandLine) -> None:
    path = talk("codex", contextstash.folder, *TOLD)
    fields = {"transcript_path": str(path)}
    assert fire(contextstash, "codex", "SessionStart", source="startup", **fields) is None
    assert fire(contextstash, "codex", "PreCompact", trigger="auto", **fields) is None
    answer = fire(contextstash, "codex", "SessionStart", source="compact", **fields)
    assert answer["hookSpecificOutput"]["hookEventName"] == "SessionStart"
    assert "5433" in answer["hookSpecificOutput"]["additionalContext"]


def test_a_codex_session_is_recorded_while_it_runs(contextstash: CommandLine) -> None:
    folder = contextstash.folder

    def recorded(event: str, turns: int, **fields: Any) -> int:
        path = talk("codex", folder, *TOLD[:turns])
        assert fire(contextstash, "codex", event, transcript_path=str(path), **fields) is None
        [session] = contextstash.json("sessions")["sessions"]
        assert session["title"].startswith("Step 0: the port must stay 5433")
        return int(session["messages"])

    assert recorded("Stop", 3) == 6
    assert recorded("SessionEnd", 4, reason="other") == 8


@pytest.mark.parametrize("client", ["codex", "gemini"])
@pytest.mark.parametrize("typed", ["", "{", "[]", '{"hook_event_name": 5}', '{"hook_event_name": "SessionEnd"}'])
def test_whatever_comes_in_the_users_work_goes_on(contextstash: CommandLine, client: str, typed: str) -> None:
    done = contextstash.run("hook", client, typed=typed)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
