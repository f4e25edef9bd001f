"""`contextstash import`: transcripts are recorded once, and one broken file does not stop the others."""

from __future__ import annotations

import json
import re
from contextlib import closing
from pathlib import Path

import pytest
from sqlcipher3 import dbapi2 as sqlite3

from tests.support.client_files import write_json, write_session
from tests.support.command_line import CommandLine, failure_of, write_transcript


def test_an_import_only_records_even_if_the_session_is_far_over_its_thresholds(contextstash: CommandLine) -> None:
    path = contextstash.folder / "session.jsonl"
    write_transcript(path, outputs=12)
    small = ("--set", "window=20000", "--set", "output_reserve=2000")
    assert contextstash.run("import", path, *small).returncode == 0
    status = contextstash.json("status", *small)
    assert status["changes"] == []
    assert status["estimate"]["level"] in ("critical", "overflow")
    assert (status["messages_summarized"], status["outputs_archived"]) == (0, 0)


WORDS = "Read the orchard"


def write_everything(home: Path) -> dict[str, int]:
    """One session of each kind below this folder, and other files. Returns each session's length by its agent."""
    (home / "claude").mkdir(parents=True)
    write_transcript(home / "claude" / "5b1f6c1e-0000-4000-8000-000000000001.jsonl", outputs=1)
    for client in ("codex", "gemini", "opencode", "pi"):
        write_session(client, home, f"{client}-1", "/srv", WORDS)
    logs = [{"sessionId": "gemini-1", "messageId": 0, "type": "user", "message": "x"}]
    write_json(home / ".gemini" / "logs.json", logs)
    write_json(home / "plain" / "settings.json", {"theme": "dark"})
    (home / "plain" / "broken.json").write_text("{\n  // a comment\n}\n", encoding="utf-8")
    return {"claude-code": 4, "codex": 1, "gemini": 1, "opencode": 1, "pi": 1}


def test_all_transcripts_below_a_folder_are_found_once_and_other_files_refused_by_name_alone(
    contextstash: CommandLine,
) -> None:
    lengths = write_everything(contextstash.folder / "home")
    done = contextstash.run("import", contextstash.folder / "home")
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        "Skipped 4 files without a transcript, deleted here, or exported; to import one, name it:"
        f" {done.stderr.split()[-1]}"
    ]
    found: dict[str, int] = {}
    for session in contextstash.json("sessions")["sessions"]:
        found[session["agent"]] = found.get(session["agent"], 0) + session["messages"]
    assert found == lengths
    settings = contextstash.folder / "home" / "plain" / "settings.json"
    absent = contextstash.folder / "absent.jsonl"
    named = contextstash.run("import", contextstash.folder / "home", settings, absent)
    assert named.returncode == 1
    assert f"Not imported: {settings}: Unrec" in named.stderr
    assert f"Not imported: {absent}: No such file or directory\n" in named.stderr


def test_an_export_is_not_imported_from_a_folder(contextstash: CommandLine) -> None:
    folder = contextstash.folder / "home"
    folder.mkdir()
    write_transcript(folder / "5b1f6c1e-0000-4000-8000-000000000001.jsonl", outputs=1)
    contextstash.run("import", folder)
    export = folder / "before.jsonl"
    export.write_text(contextstash.run("export", "5b1f").stdout)
    done = contextstash.run("import", folder)
    assert done.stderr.startswith("Skipped 1 file ")
    assert done.stderr.endswith(f"to import one, name it: {export}\n")
    assert len(contextstash.json("sessions")["sessions"]) == 1
    [named] = contextstash.json("import", export)
    assert (named["recorded"], named["duplicates"]) == (0, 4)


def test_a_folder_does_not_bring_back_what_was_deleted_and_a_named_file_does(contextstash: CommandLine) -> None:
    folder = contextstash.folder / "transcripts"
    folder.mkdir()
    path = folder / "session.jsonl"
    write_transcript(path, outputs=3)
    [first] = contextstash.json("import", folder)
    assert contextstash.run("delete", first["session_id"], "--yes").returncode == 0
    again = contextstash.run("import", folder)
    assert again.returncode == 0, again.stderr
    assert again.stderr.endswith(f"to import one, name it: {path}\n")
    assert contextstash.json("sessions")["sessions"] == []
    [back] = contextstash.json("import", path)
    assert back["recorded"] == 8


def test_without_a_path_the_clients_own_folders_are_read(contextstash: CommandLine) -> None:
    assert "No client has kept a session here" in failure_of(contextstash.run("import"))
    session = "5b1f6c1e-0000-4000-8000-000000000001"
    write_transcript(contextstash.folder / ".claude" / "projects" / "p" / f"{session}.jsonl", outputs=1)
    [report] = contextstash.json("import")
    assert (report["session_id"], report["recorded"]) == (session, 4)


def test_a_file_whose_only_message_is_refused_is_a_failure(contextstash: CommandLine) -> None:
    path = write_json(contextstash.folder / "m.json", [{"role": "user", "content": [{"type": "text", "text": 5}]}])
    done = contextstash.run("import", path)
    assert done.returncode == 1
    assert "no message in it can be recorded" in done.stderr


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


def test_a_hook_opens_it_too(line: CommandLine) -> None:
    assert line.run("encrypt", "--key", f"file:{line.folder}/key").returncode == 0
    folder = line.folder / ".claude" / "projects" / "p"
    folder.mkdir(parents=True)
    transcript = folder / "5b1f6c1e-0000-4000-8000-000000000001.jsonl"
    write_transcript(transcript)
    event = {"hook_event_name": "PreCompact", "session_id": transcript.stem, "transcript_path": str(transcript)}
    done = line.run("hook", "claude-code", typed=json.dumps(event))
    assert (done.returncode, done.stderr) == (0, "")
    assert transcript.stem in [each["session_id"] for each in line.json("sessions")["sessions"]]
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
