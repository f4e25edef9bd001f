"""A hook reads nothing but regular files below its client's own folders, and its log is its owner's alone."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.client_files import SESSION, prompt, write_lines
from tests.support.command_line import CommandLine, write_transcript

LARGE = "\n".join(f"{number}: compiling part {number}" for number in range(4_000))

pytestmark = pytest.mark.skipif(os.name == "nt", reason="modes, links and devices are those of POSIX")


@pytest.fixture(autouse=True)
def wide_umask() -> Iterator[None]:
    """What is made without a mode of its own is readable for everybody."""
    before = os.umask(0)
    yield
    os.umask(before)


def projects(contextstash: CommandLine) -> Path:
    folder = contextstash.folder / ".claude" / "projects" / "-srv-app"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def fire(contextstash: CommandLine, transcript: str | Path, event: str = "SessionEnd", **fields: Any) -> str:
    """What the hook prints; it must end, and end well."""
    named = {"session_id": SESSION, "transcript_path": str(transcript), "hook_event_name": event, **fields}
    done = contextstash.run("hook", "claude-code", typed=json.dumps(named))
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def log_of(contextstash: CommandLine) -> str:
    return (contextstash.folder / "hooks.log").read_text()


def outside(contextstash: CommandLine, kind: str) -> Path:
    """A path that no client would name."""
    secret = write_lines(contextstash.folder / "outside.jsonl", [prompt("a", None, "the secret")])
    path = projects(contextstash) / f"{SESSION}.jsonl"
    match kind:
        case "device":
            return Path("/dev/zero")
        case "outside":
            return secret
        case "dots":
            return path.parent / ".." / ".." / ".." / "outside.jsonl"
        case "fifo":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case _:
            path.symlink_to({"link to a device": Path("/dev/zero"), "link out": secret}.get(kind, path))
    return path


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "kind", ["device", "outside", "dots", "fifo", "folder", "link to a device", "link out", "link to itself"]
)
def test_a_file_that_is_not_the_clients_own_is_not_read_and_the_log_says_so(
    contextstash: CommandLine, kind: str
) -> None:
    path = outside(contextstash, kind)
    assert fire(contextstash, path) == ""
    assert fire(contextstash, path, "SessionStart", source="compact") == ""
    response = {"stdout": LARGE, "stderr": "", "persistedOutputPath": str(path)}
    fields = {"tool_name": "Bash", "tool_input": {"command": "make"}, "tool_response": response}
    assert fire(contextstash, "", "PostToolUse", **fields) == ""  # what the client shows names the file, and stays
    assert log_of(contextstash).count("Not read: ") == 3
    assert contextstash.json("sessions")["sessions"] == []


@pytest.mark.parametrize("client", ["claude-code", "codex", "gemini"])
def test_each_client_reads_only_the_folder_that_it_is_configured_for(contextstash: CommandLine, client: str) -> None:
    path = projects(contextstash) / f"{SESSION}.jsonl"
    write_transcript(path)
    named = {"session_id": SESSION, "transcript_path": str(path), "hook_event_name": "SessionEnd"}
    elsewhere = {"CLAUDE_CONFIG_DIR": str(contextstash.folder / "other")}
    done = contextstash.run("hook", client, typed=json.dumps(named), environment=elsewhere)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert "Not read: " in log_of(contextstash)
    assert contextstash.json("sessions")["sessions"] == []


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_log_and_the_database_are_their_owners_alone(contextstash: CommandLine) -> None:
    fire(contextstash, "/dev/zero")
    made = [path for path in contextstash.folder.iterdir() if path.is_file()]
    assert {path.name for path in made} >= {"hooks.log", "sessions.db"}
    assert {path.name: oct(mode(path)) for path in made if mode(path) & 0o077} == {}


def test_a_log_that_others_could_read_is_closed_to_them_and_begun_again_when_it_is_long(
    contextstash: CommandLine,
) -> None:
    log = contextstash.folder / "hooks.log"
    log.write_text("x" * 1_000_001)
    log.chmod(0o666)
    fire(contextstash, "/dev/zero")
    assert (mode(log), "Not read" in log.read_text()) == (0o600, True)
    assert log.stat().st_size < 1_000


def test_the_log_is_not_written_through_a_link(contextstash: CommandLine) -> None:
    other = contextstash.folder / "other.txt"
    other.write_text("")
    (contextstash.folder / "hooks.log").symlink_to(other)
    fire(contextstash, "/dev/zero")
    assert other.read_text() == ""
