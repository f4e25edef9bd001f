"""Sessions through the hooks of Claude Code, Codex and Gemini CLI: outputs replaced, compactions survived."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from contextstash.clients.hooks import MAX_ARCHIVED_CHARACTERS, MAX_EVENT_BYTES
from contextstash_storage.records import Event
from tests.support.client_files import SESSION, TranscriptFile, write_session
from tests.support.command_line import CommandLine
from tests.support.stashes import stash_at

LARGE = "\n".join(f"{number}: compiling part {number}" for number in range(4_000)) + "\nfatal error: disk full"


def fired(contextstash: CommandLine, client: str, event: str, *options: str, **fields: Any) -> Any:
    """The hook's response to an event, None if it has none."""
    named = json.dumps({"session_id": SESSION, "hook_event_name": event, "cwd": str(contextstash.folder), **fields})
    done = contextstash.run("hook", client, *options, typed=named)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout) if done.stdout else None


class Hooked:
    """A project in which Claude Code runs with our hooks; its transcript grows as the test goes on."""

    def __init__(self, contextstash: CommandLine) -> None:
        self.command_line = contextstash
        self.transcript = contextstash.folder / ".claude" / "projects" / "-home-dev-app" / f"{SESSION}.jsonl"
        self.transcript.parent.mkdir(parents=True)
        self._file = TranscriptFile(self.transcript)

    def fire(self, event: str, part: str = "1/1", **fields: Any) -> Any:
        """The hook's response to an event, None if it has none."""
        fields["transcript_path"] = str(self.transcript)
        return fired(self.command_line, "claude-code", event, "--part", part, **fields)

    def after(self, tool: str, response: Any, **tool_input: Any) -> Any:
        """The replaced response, None if it is unchanged."""
        answer = self.fire("PostToolUse", tool_name=tool, tool_input=tool_input, tool_response=response)
        if answer is None:
            return None
        assert answer["hookSpecificOutput"]["hookEventName"] == "PostToolUse"
        return answer["hookSpecificOutput"]["updatedToolOutput"]

    def write(self, role: str, content: Any, agent: str | None = None, tokens: int = 0, **fields: Any) -> None:
        """A line of the transcript, or of that of a sub-agent. A reply reports `tokens` as the size of its request."""
        usage = {"usage": {"input_tokens": tokens, "output_tokens": 1}} if tokens else {}
        self._file.write(role, content, agent=agent, message=usage, cwd=str(self.command_line.folder), **fields)

    def call(self, number: int, output: str | None, agent: str | None = None, tokens: int = 0) -> None:
        """A tool call and its result, as the transcript has them; without an output the tool still runs."""
        self.tool(number, "Bash", {"command": f"make {number}"}, output, agent, tokens)

    def tool(
        self, number: int, name: str, given: Any, output: str | None, agent: str | None = None, tokens: int = 0
    ) -> None:
        """A call of any tool, and its result."""
        use = {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": given}
        self.write("assistant", [use], agent, tokens)
        if output is not None:
            self.write("user", [{"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": output}], agent)

    def whole(self, handle: str) -> str:
        return self.command_line.run("show", handle).stdout


@pytest.fixture
def hooked(contextstash: CommandLine) -> Hooked:
    return Hooked(contextstash)


def handle_in(text: str) -> str:
    found = re.search(r"out_[a-z2-7]+(?:-\d+)?", text)
    assert found, text[-300:]
    return found[0]


def test_a_large_output_is_replaced_in_its_own_shape_once_it_is_archived(hooked: Hooked) -> None:
    response = {"stdout": LARGE, "stderr": "", "interrupted": False, "isImage": False}
    updated = hooked.after("Bash", response, command="make all")
    assert set(updated) == {"stdout", "stderr", "interrupted", "isImage"}
    assert len(updated["stdout"]) <= 10_000 < len(LARGE)
    assert updated["stdout"].startswith("0: compiling part 0\n")
    assert "fatal error: disk full" in updated["stdout"]
    assert hooked.whole(handle_in(updated["stdout"])) == LARGE


def test_a_file_is_cut_if_it_is_very_long_and_only_at_its_end_because_claude_code_numbers_its_lines(
    hooked: Hooked,
) -> None:
    def read(text: str) -> Any:
        return hooked.after("Read", {"type": "text", "file": {"filePath": "a.py", "content": text, "startLine": 1}})

    assert read(LARGE[:40_000]) is None
    shown = read(LARGE)["file"]["content"]
    kept = shown[: shown.rindex("[contextstash")].rstrip("\n")
    assert len(kept) > 30_000
    assert LARGE.startswith(f"{kept}\n")
    assert hooked.whole(handle_in(shown)) == LARGE


def test_an_output_that_claude_code_keeps_in_a_file_is_archived_whole_and_shown_as_long_as_its_own_preview(
    hooked: Hooked,
) -> None:
    wide = LARGE.replace("part", "部分")
    updated = persisted(hooked, wide, hooked.transcript.with_suffix("") / "tool-results" / "b7me750tt.txt")
    assert set(updated) == {"stdout", "stderr"}
    assert "fatal error: disk full" in updated["stdout"]
    assert len(updated["stdout"].encode()) <= 2_000
    hooked.call(0, updated["stdout"])
    hooked.fire("PreCompact")  # the recorded output is the preview; its handle leads to the whole one too
    recorded, kept = handle_in(hooked.command_line.run("show", SESSION).stdout), handle_in(updated["stdout"])
    assert recorded != kept
    assert hooked.whole(recorded) == hooked.whole(kept) == wide


def persisted(hooked: Hooked, text: str, file: Path) -> Any:
    """What is shown of an output that Claude Code keeps in this file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    response = {"stdout": text[:30_000], "stderr": "", "persistedOutputPath": str(file), "persistedOutputSize": 9}
    return hooked.after("Bash", response, command="make all")


@pytest.mark.parametrize(
    ("characters", "says"), [(MAX_ARCHIVED_CHARACTERS, "too long"), (MAX_EVENT_BYTES, "is not handled")]
)
def test_what_takes_too_long_while_the_client_waits_stays_as_it_is(hooked: Hooked, characters: int, says: str) -> None:
    assert hooked.after("mcp__some__tool", "x" * (characters + 1)) is None
    assert says in (hooked.command_line.folder / "hooks.log").read_text()
    assert not hooked.command_line.database.exists()


@pytest.mark.parametrize(
    ("tool", "response", "text_of"),
    [
        ("Read", {"type": "text", "file": {"filePath": "a.py", "content": LARGE}}, lambda r: r["file"]["content"]),
        ("Grep", {"mode": "content", "content": LARGE, "numLines": 4_001}, lambda r: r["content"]),
        ("mcp__github__get_file", [{"type": "text", "text": LARGE}], lambda r: r[0]["text"]),
        ("mcp__github__get_file", {"content": [{"type": "text", "text": LARGE}]}, lambda r: r["content"][0]["text"]),
        ("mcp__some__tool", LARGE, lambda r: r),
    ],
    ids=["Read", "Grep", "MCP blocks", "MCP result", "text"],
)
def test_each_tools_shape_is_kept(hooked: Hooked, tool: str, response: Any, text_of: Any) -> None:
    updated = hooked.after(tool, response, path="a.py")
    assert type(updated) is type(response)
    assert hooked.whole(handle_in(text_of(updated))) == LARGE


RESULT = [{"type": "text", "text": LARGE}]


@pytest.mark.parametrize(
    ("client", "tool", "response"),
    [
        ("claude-code", "Bash", {"stdout": "done", "stderr": ""}),
        ("claude-code", "mcp__contextstash__get_archived_output", RESULT),
        ("claude-code", "Edit", {"filePath": "a.py", "originalFile": LARGE}),
        ("claude-code", "mcp__shots__take", [{"type": "image", "data": "A" * 90_000}]),
        ("codex", "Bash", "short"),
        ("codex", "mcp__contextstash__get_archived_output", LARGE),
        ("codex", "view", {"content": [{"type": "image", "data": LARGE}]}),
        ("codex", "mcp__x__y", {"content": RESULT, "isError": True}),
        ("gemini", "read_file", {"llmContent": "short"}),
        ("gemini", "mcp_contextstash_get_archived_output", {"llmContent": LARGE}),
        ("gemini", "x", {"llmContent": LARGE, "error": {"message": "failed"}}),
        ("gemini", "x", {"llmContent": [{"text": LARGE}, {"inlineData": {"data": "x"}}]}),
        ("gemini", "x", None),
    ],
)
def test_what_is_small_ours_an_error_or_of_an_unknown_shape_stays(
    contextstash: CommandLine, client: str, tool: str, response: Any
) -> None:
    event = "AfterTool" if client == "gemini" else "PostToolUse"
    assert fired(contextstash, client, event, tool_name=tool, tool_input={}, tool_response=response) is None
    assert not contextstash.database.exists()


def test_a_compaction_is_survived_with_a_hand_off_and_everything_found_again(hooked: Hooked) -> None:
    hooked.write("user", "Fix the build. Never touch the public API.")
    for number in range(12):
        hooked.call(number, "".join(f"{line}: built part {number}\n" for line in range(200)))
    updated = hooked.after("Bash", {"stdout": LARGE, "stderr": ""}, command="make all")
    hooked.call(99, updated["stdout"])
    assert hooked.fire("PreCompact", trigger="auto") is None
    hooked.write("user", "This session continues from before.", isCompactSummary=True)
    context = hooked.fire("SessionStart", source="compact")["hookSpecificOutput"]["additionalContext"]
    assert "Never touch the public API." in context
    assert "## Outputs kept, newest first" in context
    assert len(context) <= 10_000
    assert "11: built part 7" in hooked.whole(handle_in(_line_with(context, "make 7")))
    found = hooked.command_line.json("search", "fatal disk full")
    assert hooked.whole(handle_in(updated["stdout"])) == LARGE
    assert found["hits"]


def test_a_long_hand_off_comes_in_parts_that_the_client_takes_whole(hooked: Hooked) -> None:
    hooked.write("user", "Fix the build. Never touch the public API.")
    for number in range(40):
        line = "return the_sum_of_all_fines_of_one_reader_in_one_year"
        functions = "".join(f"def part_{number}_{each}():\n    {line}_{each}\n\n" for each in range(60))
        hooked.tool(number, "Write", {"file_path": f"/srv/part{number}.py", "content": functions}, "created")
    hooked.write("user", "This session continues from before.", isCompactSummary=True)
    answers = [hooked.fire("SessionStart", f"{number}/3", source="compact") for number in (1, 2, 3)]
    parts = [answer["hookSpecificOutput"]["additionalContext"] for answer in answers if answer]
    assert [len(part) <= 10_000 for part in parts] == [True, True]
    first, second = parts
    assert "part 1 of 2 of a hand-off" in first
    assert "part 2 of 2 of a hand-off, continued" in second
    assert "Never touch the public API." in first
    assert "def part_39_" in first
    assert [part.count("```") % 2 for part in parts] == [0, 0], "what is fenced is closed"
    assert [hooked.fire("SessionStart", f"{number}/3", source="compact") for number in (1, 2, 3)] == [None] * 3
    events = asyncio.run(events_of(hooked.command_line.database))
    assert len({event.seq for event in events if event.kind == "handoff"}) == 1, "parts of one hand-off"


async def events_of(database: Path) -> list[Event]:
    async with stash_at(database) as stash:
        return await stash.store.read_log(SESSION, Event)


@pytest.mark.parametrize(("agent", "task"), [("7", "HELPER TASK 7"), ("8", "HELPER TASK 8"), (None, "MAIN TASK")])
def test_a_compaction_gets_the_hand_off_of_the_agent_whose_window_it_is(
    hooked: Hooked, agent: str | None, task: str
) -> None:
    hooked.write("user", "MAIN TASK: fix the build.")
    hooked.call(50, None, tokens=100_000)
    for helper in ("7", "8"):
        hooked.write("user", f"HELPER TASK {helper}: read the tests.", helper)
        for number in range(6):
            output = "".join(f"{line}: {helper} read {number}\n" for line in range(200))
            hooked.call(int(helper) * 100 + number, output, helper)
    named = {"agent_id": agent} if agent else {}
    hooked.fire("PreCompact", trigger="auto", **named)
    context = hooked.fire("SessionStart", source="compact", **named)["hookSpecificOutput"]["additionalContext"]
    assert [each for each in ("MAIN TASK", "HELPER TASK 7", "HELPER TASK 8") if each in context] == [task]


@pytest.mark.parametrize(
    ("event", "part", "fields"),
    [
        *(("SessionStart", "1/3", {"source": source}) for source in ("startup", "clear", "resume")),
        ("SessionStart", "2/3", {"source": "startup"}),
        ("PreCompact", "2/3", {"trigger": "auto"}),
    ],
)
def test_a_new_session_gets_nothing_and_hooks_of_further_parts_add_nothing_else(
    hooked: Hooked, event: str, part: str, fields: dict[str, str]
) -> None:
    hooked.write("user", "Fix the build. Never touch the public API.")
    assert hooked.fire(event, part, **fields) is None
    assert not hooked.command_line.database.exists()


def _line_with(text: str, word: str) -> str:
    return next(line for line in text.splitlines() if word in line and "out_" in line)


@pytest.mark.parametrize("client", ["claude-code", "codex", "gemini"])
@pytest.mark.parametrize("typed", ["", "{", "[]", "{}", '{"hook_event_name": 5}'])
def test_whatever_comes_the_user_is_not_disturbed(contextstash: CommandLine, client: str, typed: str) -> None:
    done = contextstash.run("hook", client, typed=typed)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_if_the_archive_cannot_be_written_the_output_stays_and_the_log_says_why(hooked: Hooked) -> None:
    hooked.command_line.database.write_bytes(b"this is no database" * 100)
    assert hooked.after("Bash", {"stdout": LARGE, "stderr": ""}, command="make") is None
    log = (hooked.command_line.database.parent / "hooks.log").read_text()
    assert "StoreError" in log
    assert "compiling" not in log


def test_the_users_limit_counts(hooked: Hooked) -> None:
    own = hooked.command_line.folder / "contextstash" / "contextstash.toml"
    own.parent.mkdir(parents=True)
    own.write_text("[agents.claude-code]\noutput_tokens = 1500\n")
    updated = hooked.after("Bash", {"stdout": LARGE[:6_100], "stderr": ""})
    assert len(updated["stdout"]) <= 6_000


MAX_MODULES, MAX_LINES = 50, 8_000
"""Of ours in one hook that cuts an output: the client waits for it after every tool call."""


def test_a_cut_imports_little_of_ours_and_nothing_heavy(hooked: Hooked) -> None:
    event = {"session_id": SESSION, "hook_event_name": "PostToolUse", "tool_name": "Bash", "tool_input": {}}
    event["tool_response"] = {"stdout": LARGE, "stderr": ""}
    program = "import os, sys; os._exit = lambda code: print(*sys.modules, file=sys.stderr)"
    program += "; sys.argv = ['contextstash', 'hook', 'claude-code']; from contextstash.__main__ import main; main()"
    folder = hooked.command_line.folder
    environment = {**os.environ, "HOME": str(folder), "CONTEXTSTASH_DB": str(folder / "cut.db")}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, input=json.dumps(event), env=environment, capture_output=True, text=True)
    assert "stdout" in json.loads(done.stdout)["hookSpecificOutput"]["updatedToolOutput"]
    imported = set(done.stderr.split("\n")[0].split())
    assert not imported & {"tiktoken", "mcp", "anthropic", "click"}
    ours = [find_spec(name) for name in imported if name.split(".")[0] in ("contextstash", "contextstash_storage")]
    lines = sum(len(Path(spec.origin).read_text("utf-8").splitlines()) for spec in ours if spec and spec.origin)
    assert "contextstash.record.output_archive" in imported
    assert len(ours) <= MAX_MODULES
    assert lines <= MAX_LINES


@pytest.mark.parametrize("event", ["SubagentStop", "SessionEnd"])
def test_a_session_that_was_deleted_is_recorded_again_only_by_an_import(hooked: Hooked, event: str) -> None:
    run, response = hooked.command_line.run, {"stdout": LARGE, "stderr": ""}
    hooked.write("user", "The private matter 4711.")
    hooked.write("assistant", "Noted.")
    hooked.fire("SubagentStop")
    updated = hooked.after("Bash", response, command="make all")
    assert "4711" in run("search", "4711").stdout
    run("delete", SESSION, "--yes")
    assert hooked.after("Bash", response, command="make all") is None
    assert run("show", handle_in(updated["stdout"])).returncode != 0
    for _ in range(2):
        hooked.write("user", "Go on.")
        hooked.call(1, "done", agent="a1")
        hooked.fire(event)
        hooked.fire("SessionStart", source="resume")
        assert "No sessions" in run("sessions").stdout
    log = next(hooked.command_line.folder.rglob("hooks.log")).read_text().splitlines()
    assert f"not recorded again; `contextstash import {hooked.transcript}` brings it back" in log[0]
    run("import", str(hooked.transcript))
    hooked.write("user", "Once more: 4712.")
    hooked.fire(event)
    assert "message 0" in run("search", "4711").stdout
    assert "Once more" in run("search", "4712").stdout


# Codex and Gemini CLI.


@pytest.mark.parametrize(
    ("client", "event", "response", "decision"),
    [
        ("codex", "PostToolUse", LARGE, "block"),
        ("gemini", "AfterTool", {"llmContent": [{"text": LARGE}], "returnDisplay": LARGE}, "deny"),
    ],
)
def test_the_reason_of_a_refusal_is_shown_in_the_place_of_a_large_output(
    contextstash: CommandLine, client: str, event: str, response: Any, decision: str
) -> None:
    call = {"tool_name": "run", "tool_input": {"command": "make"}, "tool_response": response}
    answer = fired(contextstash, client, event, **call)
    assert answer["decision"] == decision
    assert answer["reason"].startswith("This is no error") == (client == "gemini")
    assert len(answer["reason"]) <= (10_200 if client == "gemini" else 10_000)
    assert "fatal error: disk full" in answer["reason"]
    assert contextstash.run("show", handle_in(answer["reason"])).stdout.rstrip("\n") == LARGE
    if client == "codex":  # What a script of the model asked for goes to the script.
        assert fired(contextstash, client, event, **call, tool_use_id="exec-9d411b2e") is None


TOLD = [f"Step {number}: the port must stay 5433 in config/db_{number}.toml." for number in range(30)]


def test_codex_is_recorded_while_it_runs_and_told_of_a_compacted_session_when_it_goes_on(
    contextstash: CommandLine,
) -> None:
    def fire(event: str, turns: int, **fields: Any) -> Any:
        folder = contextstash.folder
        path = write_session("codex", folder, SESSION, folder, *TOLD[:turns], reply="Noted.")
        return fired(contextstash, "codex", event, transcript_path=str(path), **fields)

    for event, turns in (("Stop", 3), ("SessionEnd", 4)):
        assert fire(event, turns) is None
        [session] = contextstash.json("sessions")["sessions"]
        assert session["title"].startswith("Step 0: the port must stay 5433")
        assert session["messages"] == 2 * turns
    assert fire("SessionStart", 30, source="startup") is None
    assert fire("PreCompact", 30, trigger="auto") is None
    answer = fire("SessionStart", 30, source="compact")
    assert answer["hookSpecificOutput"]["hookEventName"] == "SessionStart"
    assert "5433" in answer["hookSpecificOutput"]["additionalContext"]
