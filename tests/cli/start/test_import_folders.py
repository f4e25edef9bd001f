"""`contextstash import` on what clients store: folders, databases, and other files beside them."""

from __future__ import annotations

from pathlib import Path

from tests.support.client_files import write_json, write_session
from tests.support.command_line import CommandLine, failure_of, write_transcript

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


def test_all_transcripts_below_a_folder_are_found_once_with_their_agents(contextstash: CommandLine) -> None:
    lengths = write_everything(contextstash.folder / "home")
    reports = contextstash.json("import", contextstash.folder / "home")
    assert all("error" not in report for report in reports)
    sessions = contextstash.json("sessions")["sessions"]
    found: dict[str, int] = {}
    for session in sessions:
        found[session["agent"]] = found.get(session["agent"], 0) + session["messages"]
    assert found == lengths


def test_a_second_import_of_a_folder_records_nothing(contextstash: CommandLine) -> None:
    write_everything(contextstash.folder / "home")
    first = contextstash.json("import", contextstash.folder / "home")
    second = contextstash.json("import", contextstash.folder / "home", contextstash.folder / "home" / ".pi")
    assert [report["session_id"] for report in second] == [report["session_id"] for report in first]
    assert sum(report["recorded"] + report["duplicates"] for report in second) == 0


def test_files_that_are_not_transcripts_are_skipped_in_folders_but_refused_by_name(contextstash: CommandLine) -> None:
    write_everything(contextstash.folder / "home")
    settings = contextstash.folder / "home" / "plain" / "settings.json"
    done = contextstash.run("import", contextstash.folder / "home")
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        "Skipped 4 files without a transcript, deleted here, or exported; to import one, name it:"
        f" {done.stderr.split()[-1]}"
    ]
    named = contextstash.run("import", contextstash.folder / "home", settings)
    assert named.returncode == 1
    assert f"Not imported: {settings}" in named.stderr


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
    named = contextstash.json("import", export, "--session", "copy")
    assert [report["session_id"] for report in named] == ["copy"]


def test_only_one_exported_session_takes_an_id(contextstash: CommandLine) -> None:
    folder = contextstash.folder / "transcripts"
    folder.mkdir()
    write_transcript(folder / "session.jsonl", outputs=1)
    done = contextstash.run("import", folder / "session.jsonl", "--session", "mine")
    assert done.returncode == 1
    assert "--session is for an exported session" in done.stderr
    assert "--session names one exported session" in failure_of(contextstash.run("import", "--session", "mine"))


def test_a_folder_without_a_transcript_is_an_error(contextstash: CommandLine) -> None:
    (contextstash.folder / "nothing").mkdir()
    assert "There is no transcript in" in failure_of(contextstash.run("import", contextstash.folder / "nothing"))


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
