"""`contextstash import`: transcripts are recorded once, and one broken file does not stop the others."""

from __future__ import annotations

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


def test_a_missing_file_is_named_and_the_others_are_imported(contextstash: CommandLine) -> None:
    good = contextstash.folder / "good.jsonl"
    write_transcript(good, outputs=2)
    done = contextstash.run("import", contextstash.folder / "absent.jsonl", good)
    assert done.returncode == 1
    assert "absent.jsonl" in done.stderr
    assert "Traceback" not in done.stderr
    assert "good.jsonl" in done.stdout
