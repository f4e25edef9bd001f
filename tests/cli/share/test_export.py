"""`contextstash export`: a session written to a file, for another contextstash or for people."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine, failure_of
from tests.support.hostile_values import SCRIPT, messages


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
    written(contextstash, "-o", str(file))
    other = tmp_path / "other.db"
    [report] = json.loads(contextstash.run("import", file, "--db", other, "--json").stdout)
    assert (report["recorded"], report["duplicates"]) == (144, 0)
    [again] = json.loads(contextstash.run("import", file, "--db", other, "--json").stdout)
    assert (again["recorded"], again["duplicates"]) == (0, 144)
    here = contextstash.run("status", "--json").stdout
    assert contextstash.run("status", "--json", "--db", other).stdout == here


def test_the_history_is_messages_of_the_provider(contextstash: CommandLine) -> None:
    assert [json.loads(line) for line in written(contextstash, "--format", "messages").splitlines()] == messages()


class Tags(HTMLParser):
    """The tags of a page, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_the_html_page_runs_and_loads_nothing_and_holds_every_text(contextstash: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "session.html"
    written(contextstash, "-o", str(file))
    page = Tags()
    page.feed(file.read_text(encoding="utf-8"))
    assert page.tags <= {
        "html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "p", "pre", "article", "details",
        "summary", "span", "bdi", "header", "section", "div",
    }  # fmt: skip
    assert not {"src", "href", "onerror", "onclick"} & page.attributes
    text = "".join(page.text)
    assert SCRIPT in text
    assert "59: part 45 of the build" in text
    assert "prefers-color-scheme" in file.read_text(encoding="utf-8") or "light-dark(" in file.read_text(
        encoding="utf-8"
    )


def test_a_failed_export_is_reported_and_leaves_no_file(contextstash: CommandLine, tmp_path: Path) -> None:
    session = session_of(contextstash)
    assert "cannot be written" in failure_of(contextstash.run("export", session, "-o", tmp_path / "no" / "x.html"))
    assert "There is no session" in failure_of(contextstash.run("export", "nothing", "-o", tmp_path / "x.html"))
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".x.html") or path.name == "x.html"]
