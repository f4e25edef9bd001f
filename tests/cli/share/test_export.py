"""`contextstash export`: a session as JSON lines, for another contextstash to import."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine, failure_of
from tests.support.pages import messages


@pytest.fixture
def contextstash(tmp_path: Path) -> CommandLine:
    """`contextstash` with a session of every kind of content, pruned and compacted."""
    line = CommandLine(tmp_path)
    source = tmp_path / "build.json"
    source.write_text(json.dumps(messages()))
    [report] = json.loads(line.run("import", source, "--json").stdout)
    for command in (("prune", "--keep-last", "4"), ("compact",)):
        assert line.run(command[0], report["session_id"], *command[1:]).returncode == 0
    return line


def session_of(line: CommandLine) -> str:
    found: str = json.loads(line.run("sessions", "--json").stdout)["sessions"][0]["session_id"]
    return found


def written(line: CommandLine, *arguments: str) -> str:
    done = line.run("export", session_of(line), *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_imported_session_equals_the_exported_one(contextstash: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "session.jsonl"
    file.write_text(written(contextstash))
    other = tmp_path / "other.db"
    [report] = json.loads(contextstash.run("import", file, "--db", other, "--json").stdout)
    assert (report["recorded"], report["duplicates"]) == (144, 0)
    [again] = json.loads(contextstash.run("import", file, "--db", other, "--json").stdout)
    assert (again["recorded"], again["duplicates"]) == (0, 144)
    here = contextstash.run("status", "--json").stdout
    assert contextstash.run("status", "--json", "--db", other).stdout == here


def test_the_history_is_messages_of_the_provider(contextstash: CommandLine) -> None:
    assert [json.loads(line) for line in written(contextstash, "--messages").splitlines()] == messages()


def test_a_session_that_is_not_there_is_named(contextstash: CommandLine) -> None:
    assert "There is no session" in failure_of(contextstash.run("export", "nothing"))
