"""`contextstash import`: transcripts are recorded once, and one broken file does not stop the others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import closing, suppress

import pytest
from sqlcipher3 import dbapi2 as sqlite3

from tests.support.command_line import CommandLine, write_transcript


def test_an_import_only_records_even_if_the_session_is_far_over_its_thresholds(contextstash: CommandLine) -> None:
    path = contextstash.folder / "session.jsonl"
    write_transcript(path, outputs=12)
    small = ("--set", "window=20000", "--set", "output_reserve=2000")
    assert contextstash.run("import", path, *small).returncode == 0
    assert contextstash.json("status", "--events") == []
    status = contextstash.json("status", *small)
    assert status["estimate"]["level"] in ("critical", "overflow")
    assert (status["messages_summarized"], status["outputs_archived"]) == (0, 0)


def test_a_copy_of_a_transcript_records_nothing(contextstash: CommandLine) -> None:
    path = contextstash.folder / "session.jsonl"
    write_transcript(path, outputs=3)
    copy = contextstash.folder / "copy.jsonl"
    copy.write_bytes(path.read_bytes())
    reports = [contextstash.json("import", each)[0] for each in (path, path, copy)]
    assert [report["recorded"] for report in reports] == [8, 0, 0]


def test_the_table_names_only_what_is_new(contextstash: CommandLine) -> None:
    names = [f"5b1f6c1e-0000-4000-8000-00000000000{number}" for number in range(3)]
    for name in names:
        write_transcript(contextstash.folder / "projects" / f"{name}.jsonl", session=name, outputs=3)
    first = contextstash.run("import", "projects").stdout.splitlines()
    assert first[0].split() == ["session", "new", "file"]
    assert len(first) == 5
    assert first[-1] == "Recorded 24 messages in 3 sessions; nothing new in 0 others."
    assert contextstash.run("import", "projects").stdout == (
        "Recorded 0 messages in 0 sessions; nothing new in 3 others.\n"
    )
    write_transcript(contextstash.folder / "projects" / f"{names[0]}.jsonl", session=names[0], outputs=4)
    grown = contextstash.run("import", "projects").stdout.splitlines()
    assert len(grown) == 3, "the table names only the transcript that grew"
    assert grown[1].split()[:2] == [names[0], "2"]
    assert grown[-1] == "Recorded 2 messages in 1 session; nothing new in 2 others."


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGINT to send")
def test_an_import_that_is_stopped_says_how_to_continue_and_loses_nothing(contextstash: CommandLine) -> None:
    sessions = [f"5b1f6c1e-0000-4000-8000-00000000000{number}" for number in range(8)]
    for name in sessions:
        write_transcript(contextstash.folder / "projects" / f"{name}.jsonl", session=name, outputs=1_000)
    environment = {**os.environ, "CONTEXTSTASH_DB": str(contextstash.database), "HOME": str(contextstash.folder)}
    command = [sys.executable, "-m", "contextstash", "import", str(contextstash.folder / "projects")]
    # A shell starts what runs in its background, perhaps these tests, with SIGINT ignored, and children inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        importing = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    finally:
        signal.signal(signal.SIGINT, before)
    with importing:
        wait_for_session(contextstash)
        importing.send_signal(signal.SIGINT)
        shown, remarks = importing.communicate(timeout=60)
    assert importing.returncode == 130
    assert shown == b""
    assert remarks.decode() == "Stopped; run the same command again to continue. What was recorded stays.\n"
    contextstash.json("import", "projects")
    assert {each["messages"] for each in contextstash.json("sessions")["sessions"]} == {2_002}


def wait_for_session(contextstash: CommandLine) -> None:
    """Wait until an import has recorded something."""
    for _ in range(600):
        with suppress(sqlite3.OperationalError), closing(sqlite3.connect(contextstash.database)) as db:
            if db.execute("SELECT count(*) FROM messages").fetchone()[0]:
                return
        time.sleep(0.05)
    raise AssertionError("nothing was recorded")


def test_a_missing_file_is_named_and_the_others_are_imported(contextstash: CommandLine) -> None:
    good = contextstash.folder / "good.jsonl"
    write_transcript(good, outputs=2)
    done = contextstash.run("import", contextstash.folder / "absent.jsonl", good)
    assert done.returncode == 1
    assert "absent.jsonl" in done.stderr
    assert "Traceback" not in done.stderr
    assert "good.jsonl" in done.stdout
