"""The command that a client's plugin runs: as a process, with the client's transcript, without the client."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from contextstash.record.transcript_records import window_key
from contextstash.request.handoff import ClientCall, ClientMessage, ClientResult
from contextstash_storage.records import Event
from contextstash_storage.sqlite import open_sqlite
from tests.support.client_files import SESSION, applied, as_lines, passed, prompt, record, reply, write_opencode
from tests.support.command_line import CommandLine, failure_of, write_transcript

PROMPT = "Read all the orchard files. You must not change any of them."


@pytest.fixture
def home(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path)


@pytest.fixture
def transcript(tmp_path: Path) -> Path:
    path = tmp_path / ".claude" / "projects" / "-orchard" / f"{SESSION}.jsonl"
    path.parent.mkdir(parents=True)
    write_transcript(path, outputs=60)
    return path


def listed(transcript: Path) -> list[ClientMessage]:
    """The messages that Claude Code has in its window."""
    found: list[ClientMessage] = []
    for line in map(json.loads, transcript.read_text().splitlines()):
        if line.get("subtype") == "compact_boundary":
            found.clear()
        if line["type"] not in ("user", "assistant"):
            continue
        content = line["message"]["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        text = "".join(block["text"] for block in blocks if block["type"] == "text")
        used = [block for block in blocks if block["type"] == "tool_use"]
        calls = tuple(ClientCall(block["id"], block["name"], block["input"]) for block in used)
        returned = [block for block in blocks if block["type"] == "tool_result"]
        results = tuple(ClientResult(block["tool_use_id"], block["content"]) for block in returned)
        found.append(ClientMessage(line["uuid"], line["type"], text, calls, results))
    return found


def asked(transcript: Path, do: str = "compact", **more: Any) -> str:
    """A request as the plugin of Claude Code makes it."""
    messages = [asdict(message) for message in listed(transcript)]
    return json.dumps({"do": do, "transcript": str(transcript), "messages": messages, **more})


def ask(home: CommandLine, transcript: Path, do: str = "compact", **more: Any) -> dict[str, Any]:
    done = home.run("window", "claude-code", typed=asked(transcript, do, **more))
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def window(transcript: Path, answer: dict[str, Any]) -> list[ClientMessage]:
    return applied(listed(transcript), answer["messages"])


def write_window(transcript: Path, messages: list[ClientMessage], at: str) -> None:
    """What Claude Code 2.1.330 writes after a plugin returned these messages: all of them again, under new ids."""
    boundary = {"subtype": "compact_boundary", "timestamp": f"{at}.500Z"}
    records = [passed(f"boundary-{at}", None, type="system", **boundary)]
    for number, message in enumerate(messages):
        blocks: list[dict[str, Any]] = [{"type": "text", "text": message.text}] if message.text else []
        blocks += [{"type": "tool_use", "id": c.id, "name": c.tool, "input": c.input} for c in message.calls]
        blocks += [{"type": "tool_result", "tool_use_id": r.id, "content": r.text} for r in message.results]
        made = record(message.role, f"{at}-{number}", records[-1]["uuid"], blocks, timestamp=f"{at}.400Z")
        made["message"] |= {"model": "<synthetic>"} if message.role == "assistant" else {}
        records.append(made)
    with transcript.open("ab") as file:
        file.write(as_lines(records))


def recorded(home: CommandLine) -> tuple[list[Event], list[str | None]]:
    """The session's compactions, and the keys of its messages."""

    async def read() -> tuple[list[Event], list[str | None]]:
        async with await open_sqlite(home.database) as store:
            events = await store.read_log(SESSION, Event)
            messages = await store.read_messages(SESSION, bodies=False)
            return [event for event in events if event.kind == "compaction"], [message.key for message in messages]

    return asyncio.run(read())


def handle_in(placeholder: str) -> str:
    return str(re.findall(r"out_\w+", placeholder)[-1])


def test_a_compaction_returns_the_users_words_and_the_newest_messages(home: CommandLine, transcript: Path) -> None:
    answer = ask(home, transcript, tokens=6_000)
    first, *kept = window(transcript, answer)
    assert PROMPT in first.text
    assert first.text.startswith("[contextstash")
    assert answer["tokens_before"] > 12_000
    assert answer["tokens_after"] < 7_000
    assert answer["messages"][-1] == {"at": len(listed(transcript)) - 1}
    assert answer["left"] == len(listed(transcript)) - len(kept)
    assert "archived" in answer["line"]
    calls = {call.id for message in kept for call in message.calls}
    assert {result.id for message in kept for result in message.results} == calls
    [event] = recorded(home)[0]
    assert (event.strategy, event.reason) == ("client_window", "contextstash compacted the client's window.")


def test_the_view_is_the_window_of_the_compaction_until_something_is_changed(
    home: CommandLine, transcript: Path
) -> None:
    compacted = ask(home, transcript, tokens=6_000)
    viewed = ask(home, transcript, "view")
    assert viewed["messages"] == compacted["messages"]
    changed = next(part for part in compacted["messages"] if "results" in part)
    [text] = changed["results"].values()
    assert home.run("restore", handle_in(text)).returncode == 0
    assert {"at": changed["at"]} in ask(home, transcript, "view")["messages"]


def test_what_the_client_then_writes_is_recognized(home: CommandLine, transcript: Path) -> None:
    before = ask(home, transcript, "record")["recorded"]
    assert before == len(listed(transcript))
    answer = ask(home, transcript, tokens=6_000)
    text = answer["messages"][0]["text"]
    write_window(transcript, window(transcript, answer), "2026-11-20T12:00:00")
    assert ask(home, transcript, "record")["recorded"] == 0
    assert recorded(home)[1].count(window_key(text)) == 1
    assert len(recorded(home)[0]) == 1


def started(home: CommandLine, transcript: Path) -> list[str]:
    """What the hooks at the start of a compacted window add."""
    event = {"hook_event_name": "SessionStart", "source": "compact", "session_id": SESSION}
    typed = json.dumps({**event, "transcript_path": str(transcript)})
    return [home.run("hook", "claude-code", "--part", f"{part}/3", typed=typed).stdout for part in (1, 2, 3)]


def test_the_hooks_give_a_hand_off_only_to_a_window_that_the_client_compacts_itself(
    home: CommandLine, transcript: Path
) -> None:
    ask(home, transcript, tokens=6_000)
    assert started(home, transcript) == ["", "", ""]
    later = [
        reply("reply", None, "I go on."),
        passed("boundary", None, type="system", subtype="compact_boundary"),
        prompt("summary", "boundary", "This session is being continued. It is about files.", isCompactSummary=True),
    ]
    with transcript.open("ab") as file:
        file.write(as_lines([{**each, "timestamp": "2026-11-20T13:00:00.000Z"} for each in later]))
    assert PROMPT in started(home, transcript)[0]


def test_the_hooks_give_the_hand_off_if_nobody_took_the_window(home: CommandLine, transcript: Path) -> None:
    program = [sys.executable, "-m", "contextstash", "window", "claude-code"]
    own = {**os.environ, "HOME": str(home.folder), "CONTEXTSTASH_DB": str(home.database)}
    child = subprocess.Popen(program, env=own, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdout.close()  # the plugin has ended
    child.stdin.write(asked(transcript, tokens=6_000).encode())
    child.stdin.close()
    assert child.wait(timeout=100) == 1
    assert PROMPT in started(home, transcript)[0]


@pytest.mark.parametrize(
    "typed", ["", "[]", "{", '{"do": "else"}', '{"do": "compact"}', '{"do": "view", "session": "no-such-session"}']
)
def test_a_broken_request_is_one_line_and_exit_code_1(home: CommandLine, typed: str) -> None:
    assert failure_of(home.run("window", "claude-code", typed=typed))


@pytest.mark.parametrize(
    ("place", "outputs", "damaged", "says"),
    [
        ("outside.jsonl", 9, False, "outside of"),
        (f".claude/projects/-short/{SESSION}.jsonl", 0, False, "nothing to compact"),
        (f".claude/projects/-orchard/{SESSION}.jsonl", 9, True, "database"),
    ],
    ids=["not one of the client's files", "too short", "a damaged database"],
)
def test_what_cannot_be_compacted_is_left_to_the_client(
    home: CommandLine, tmp_path: Path, place: str, outputs: int, damaged: bool, says: str
) -> None:
    path = tmp_path / place
    path.parent.mkdir(parents=True, exist_ok=True)
    write_transcript(path, outputs=outputs)
    if damaged:
        home.database.write_bytes(b"not a database" * 1_000)
    assert says in failure_of(home.run("window", "claude-code", typed=asked(path)))


def test_a_session_in_opencodes_database_is_recorded(home: CommandLine) -> None:
    time = {"created": 1, "completed": 2}
    talk = [
        ({"id": "msg_1", "role": "user", "time": time}, [{"type": "text", "text": PROMPT}]),
        ({"id": "msg_2", "role": "assistant", "time": time}, [{"type": "text", "text": "Done."}]),
    ]
    database = home.folder / ".local" / "share" / "opencode" / "opencode.db"
    session = write_opencode(database, "ses_1", talk, directory="/srv/orchard")
    done = home.run("window", "opencode", typed=json.dumps({"do": "record", "transcript": str(session)}))
    assert json.loads(done.stdout) == {"session_id": "ses_1", "recorded": 2}
    outside = write_opencode(home.folder / "other.db", "ses_2", talk, directory="/srv/orchard")
    refused = home.run("window", "opencode", typed=json.dumps({"do": "record", "transcript": str(outside)}))
    assert "is outside of" in failure_of(refused)
