"""`contextstash import`: transcripts are recorded once, and one broken file does not stop the others."""

from __future__ import annotations

from tests.support.command_line import CommandLine, failure_of, write_transcript


def test_a_second_import_records_nothing(contextstash: CommandLine) -> None:
    path = contextstash.folder / "session.jsonl"
    write_transcript(path, outputs=3)
    [first] = contextstash.json("import", path)
    [second] = contextstash.json("import", path)
    assert (first["recorded"], first["duplicates"]) == (8, 0)
    assert second["recorded"] == 0
    assert second["session_id"] == first["session_id"]


def test_an_import_only_records_even_if_the_session_is_far_over_its_thresholds(contextstash: CommandLine) -> None:
    path = contextstash.folder / "session.jsonl"
    write_transcript(path, outputs=12)
    small = ("--set", "window=20000", "--set", "output_reserve=2000")
    assert contextstash.run("import", path, *small).returncode == 0
    events = contextstash.json("events")
    assert {event["kind"] for event in events} == {"level"}
    status = contextstash.json("status", *small)
    assert status["estimate"]["level"] in ("critical", "overflow")
    assert (status["messages_summarized"], status["outputs_archived"]) == (0, 0)


def test_the_level_of_an_imported_session_changed_when_its_messages_were_written(contextstash: CommandLine) -> None:
    path = contextstash.folder / "session.jsonl"
    write_transcript(path, outputs=12)
    contextstash.run("import", path, "--set", "window=20000")
    assert contextstash.json("events")[-1]["created_at"].startswith("2026-03-03T09:00:25")


def test_known_before_counts_the_messages_of_the_session_whichever_file_is_imported(contextstash: CommandLine) -> None:
    path = contextstash.folder / "session.jsonl"
    write_transcript(path, outputs=3)
    copy = contextstash.folder / "copy.jsonl"
    copy.write_bytes(path.read_bytes())
    reports = [contextstash.json("import", each)[0] for each in (path, path, copy)]
    assert [(report["recorded"], report["known"]) for report in reports] == [(8, 0), (0, 8), (0, 8)]
    shown = contextstash.run("import", path).stdout.splitlines()
    assert shown[0].split() == ["session", "new", "known", "before", "file"]
    assert shown[-1] == "Nothing new: 8 messages already recorded."


def test_a_transcript_that_grew_is_read_from_where_it_ended(contextstash: CommandLine) -> None:
    path = contextstash.folder / "session.jsonl"
    write_transcript(path, outputs=4)
    whole = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(whole[:5]), encoding="utf-8")
    contextstash.json("import", path)
    path.write_text("".join(whole), encoding="utf-8")
    [report] = contextstash.json("import", path)
    assert report["recorded"] == len(whole) - 5


def test_a_missing_file_is_named_and_the_others_are_imported(contextstash: CommandLine) -> None:
    good = contextstash.folder / "good.jsonl"
    write_transcript(good, outputs=2)
    done = contextstash.run("import", contextstash.folder / "absent.jsonl", good)
    assert done.returncode == 1
    assert "absent.jsonl" in done.stderr
    assert "Traceback" not in done.stderr
    assert "good.jsonl" in done.stdout


def test_a_folder_is_searched_for_transcripts(contextstash: CommandLine) -> None:
    folder = contextstash.folder / "projects" / "orchard"
    folder.mkdir(parents=True)
    for number in (1, 2):
        name = f"5b1f6c1e-0000-4000-8000-00000000000{number}"
        write_transcript(folder / f"{name}.jsonl", session=name, outputs=1)
    (folder / "notes.md").write_text("not a transcript")
    reports = contextstash.json("import", contextstash.folder / "projects")
    assert len({report["session_id"] for report in reports}) == 2
    assert all(report["recorded"] == 4 for report in reports)


def test_an_empty_folder_is_an_error(contextstash: CommandLine) -> None:
    empty = contextstash.folder / "empty"
    empty.mkdir()
    assert "No transcript in a recognized format" in failure_of(contextstash.run("import", empty))
