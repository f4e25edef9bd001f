"""`contextstash encrypt` and `decrypt`: where the key may be, and everything that opens the database afterwards."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import closing
from typing import Any

import pytest
from sqlcipher3 import dbapi2 as sqlite3

from tests.support.command_line import CommandLine, failure_of, write_transcript
from tests.support.servers import answered

WORD = "pomegranate"
ENCRYPTED = b"contextstash\0enc"


@pytest.fixture
def line(contextstash: CommandLine) -> CommandLine:
    """The command line, with a recorded session."""
    messages = [{"role": "user", "content": f"Where is the {WORD}?"}, {"role": "assistant", "content": "Not here."}]
    (contextstash.folder / "session.json").write_text(json.dumps(messages))
    assert contextstash.run("import", contextstash.folder / "session.json").returncode == 0
    (contextstash.folder / "session.json").unlink()
    return contextstash


def head(line: CommandLine) -> bytes:
    return line.database.read_bytes()[:16]


def hits(line: CommandLine, environment: dict[str, str] | None = None) -> int:
    return len(line.json("search", WORD, environment=environment)["hits"])


def test_the_key_is_made_in_a_file_that_only_its_owner_reads_and_every_command_finds_it(line: CommandLine) -> None:
    key = line.folder / "keys" / "database.key"
    done = line.run("encrypt", "--key", f"file:{key}")
    assert done.returncode == 0, done.stderr
    assert "Keep a copy of the key" in done.stdout
    assert re.fullmatch(r"[0-9a-f]{64}\n", key.read_text())
    assert key.stat().st_mode & 0o777 == 0o600
    assert key.read_text().strip() not in done.stdout + done.stderr
    assert head(line) == ENCRYPTED
    assert not [path for path in line.folder.rglob("*") if path.is_file() and WORD.encode() in path.read_bytes()]
    assert hits(line) == 1
    assert WORD in line.run("export", line.json("sessions")["sessions"][0]["session_id"]).stdout
    findings = {each["what"]: each for each in line.json("doctor")}
    assert ", encrypted, " in findings["database"]["says"]
    assert line.run("decrypt").returncode == 0
    assert head(line) == b"SQLite format 3\0"
    assert hits(line) == 1


@pytest.mark.parametrize(
    ("source", "advice"),
    [
        ("", "no setting says where its key is"),
        ("file:{folder}/none", "names no key"),
        ("file:relative", "by its whole path"),
        ("file:{folder}/open", "chmod 600"),
        ("file:{folder}/other", "another key than the one that the setting encryption_key names"),
        ("file:{folder}", "cannot be read"),
        ("ab" * 32, "must be file:PATH"),
        (f"command:echo {'ab' * 32}", "must be file:PATH"),
    ],
)
def test_a_key_that_is_missing_or_wrong_is_an_error_that_says_what_to_do(
    line: CommandLine, source: str, advice: str
) -> None:
    assert line.run("encrypt", "--key", f"file:{line.folder}/key").returncode == 0
    for name, mode in (("open", 0o644), ("other", 0o600)):
        (line.folder / name).write_text("cd" * 32)
        (line.folder / name).chmod(mode)
    setting = {"CONTEXTSTASH_ENCRYPTION_KEY": source.format(folder=line.folder)}
    for command in (["sessions"], ["decrypt"], ["encrypt", "--key", f"file:{line.folder}/second"]):
        said = failure_of(line.run(*command, environment=setting))
        assert advice in said or not source or "To change the key: contextstash decrypt" in said
        assert "cdcd" not in said
        assert "abab" not in said
    assert hits(line) == 1


def test_a_project_and_an_option_cannot_name_the_key(line: CommandLine) -> None:
    assert "cannot be given by --set" in failure_of(line.run("sessions", "--set", "encryption_key=file:/run"))
    (line.folder / "contextstash.toml").write_text(f'encryption_key = "file:{line.folder}/run"\n')
    done = line.run("sessions", environment={"XDG_CONFIG_HOME": str(line.folder / "config")})
    assert "contextstash config trust" in done.stderr
    apart = {"XDG_CONFIG_HOME": str(line.folder / "config")}
    assert line.run("config", "trust", "--yes", environment=apart).returncode == 0
    shown = line.run("config", "show", environment=apart).stdout
    assert f"encryption_key in {line.folder / 'contextstash.toml'} is not used" in shown
    assert not re.search(r"^encryption_key +file", shown, re.M)
    assert not (line.folder / "run").exists()


def test_the_key_is_not_changed_by_the_way(line: CommandLine) -> None:
    assert line.run("encrypt", "--key", f"file:{line.folder}/key").returncode == 0
    said = failure_of(line.run("encrypt", "--key", f"file:{line.folder}/second"))
    assert "contextstash decrypt, then encrypt" in said
    assert not (line.folder / "second").exists()


def test_a_client_that_is_running_is_not_disturbed(line: CommandLine) -> None:
    with closing(sqlite3.connect(line.database)) as client:
        client.execute("SELECT count(*) FROM sessions").fetchone()
        done = line.run("encrypt", "--key", f"file:{line.folder}/key")
    assert "open in another process, and nothing was changed" in done.stderr
    assert done.stdout == ""
    assert head(line) == b"SQLite format 3\0"
    assert hits(line) == 1
    # A setting that named a key would make every new database an encrypted one, and keep a hook from this one.
    assert re.search(r"^encryption_key +None", line.run("config", "show").stdout, re.M)
    assert line.run("encrypt", "--key", f"file:{line.folder}/key").returncode == 0


def test_a_hook_and_the_server_open_it_too(line: CommandLine) -> None:
    assert line.run("encrypt", "--key", f"file:{line.folder}/key").returncode == 0
    folder = line.folder / ".claude" / "projects" / "p"
    folder.mkdir(parents=True)
    transcript = folder / "5b1f6c1e-0000-4000-8000-000000000001.jsonl"
    write_transcript(transcript)
    event = {"hook_event_name": "PreCompact", "session_id": transcript.stem, "transcript_path": str(transcript)}
    done = line.run("hook", "claude-code", typed=json.dumps(event))
    assert (done.returncode, done.stderr) == (0, "")
    assert transcript.stem in [each["session_id"] for each in line.json("sessions")["sessions"]]
    environment = {"HOME": str(line.folder), "XDG_CONFIG_HOME": str(line.folder), "PATH": "/usr/bin:/bin"}
    started = [sys.executable, "-m", "contextstash", "serve", "--db", str(line.database)]
    call = {"name": "search_history", "arguments": {"query": WORD, "scope": "everywhere"}}
    told = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    requests: list[dict[str, Any]] = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": told},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call},
    ]
    with subprocess.Popen(
        started, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd=line.folder
    ) as server:
        answer = answered(server, *requests)
        server.kill()
    assert WORD in json.dumps(answer)
    assert not [path for path in line.folder.glob("*.db*") if WORD.encode() in path.read_bytes()]


def test_a_lost_key_of_an_encrypted_database_is_not_replaced(line: CommandLine) -> None:
    key = line.folder / "key"
    assert line.run("encrypt", "--key", f"file:{key}").returncode == 0
    kept = key.read_text()
    key.unlink()
    said = failure_of(line.run("encrypt"))
    assert "no key" in said
    assert not key.exists()
    key.write_text(kept)
    key.chmod(0o600)
    assert hits(line) == 1
