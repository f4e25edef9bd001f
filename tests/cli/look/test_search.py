"""`contextstash search`: finding words in what was recorded."""

from __future__ import annotations

import json
from typing import Any

import pytest

from contextstash import open_stash_sync
from contextstash.cli.look.search import around_match
from tests.support.command_line import CommandLine, failure_of, write_transcript
from tests.support.orchard import Orchard


def test_search_finds_an_output_by_a_line_in_it(orchard: Orchard) -> None:
    [hit, *_] = orchard.json("search", "tree 733")["hits"]
    shown = orchard.run("show", hit["handle"]).stdout
    assert "tree 733:" in shown


def test_several_words_need_no_quotes(orchard: Orchard) -> None:
    assert orchard.run("search", "tree", "733").stdout == orchard.run("search", "tree 733").stdout != ""


def test_a_search_is_limited_to_a_tool_and_to_times(orchard: Orchard) -> None:
    [hit, *_] = orchard.json("search", "tree 733")["hits"]
    handle, tool, day = hit["handle"], hit["tool"], hit["created_at"][:10]
    found = orchard.json("search", "tree 733", "--tool", tool, "--since", day, "--until", day)["hits"]
    assert handle in [each.get("handle") for each in found]
    assert {each["tool"] for each in found} == {tool}
    assert orchard.json("search", "tree 733", "--tool", "NoSuchTool")["hits"] == []
    assert orchard.json("search", "tree 733", "--since", "2999-01-01")["hits"] == []
    assert orchard.json("search", "tree 733", "--until", "1999-01-01")["hits"] == []


def test_a_search_in_a_project_takes_the_sessions_that_ran_in_its_folder(orchard: Orchard) -> None:
    found = orchard.json("search", "tree 733", "--scope", "project", "--session", orchard.session)
    assert found["hits"]
    assert orchard.json("search", "tree 733", "--scope", "project")["hits"] == []
    said = orchard.run("search", "tree 733", "--scope", "project").stderr
    assert said == "Nothing found in this project, but in 1 session: leave --scope out.\n"


def test_each_hit_ends_with_the_command_that_shows_it_whole(orchard: Orchard) -> None:
    for words, shown_whole in (("tree 733", "tree 733:"), ("oldest tree", "The quince in row 7 is the oldest tree.")):
        lines = orchard.run("search", words, "--limit", "1").stdout.splitlines()
        command = lines[-1].strip().removeprefix("contextstash ")
        assert shown_whole in orchard.run(*command.split()).stdout
    assert "--message 25" in command


def test_a_hit_in_a_call_is_shown_by_the_command_that_prints_the_call(orchard: Orchard) -> None:
    last = orchard.run("search", "row_07.txt", "--limit", "1").stdout.splitlines()[-1]
    assert last.endswith(" --call")
    assert "orchard/row_07.txt" in orchard.run(*last.strip().removeprefix("contextstash ").split()).stdout


@pytest.mark.parametrize("words", ["medlar", "grafted", "grafting medlars", "twig"])
def test_a_hit_in_a_write_or_an_edit_is_shown_by_its_command(contextstash: CommandLine, words: str) -> None:
    edits = [{"old_string": "def pear():\n    pass\n", "new_string": "def twig():\n    return 'twigs'\n"}]
    calls = [
        ("Write", {"file_path": "/a/b.py", "content": 'class Medlar:\n\tname = "grafted medlar"\n'}, "File created."),
        ("MultiEdit", {"file_path": "/a/c.py", "edits": edits}, "Applied 1 edit."),
    ]
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Go on."}]
    for name, arguments, output in calls:
        block = {"type": "tool_use", "id": name, "name": name, "input": arguments}
        answer = {"type": "tool_result", "tool_use_id": name, "content": output}
        messages += [{"role": "assistant", "content": [block]}, {"role": "user", "content": [answer]}]
    (contextstash.folder / "calls.json").write_text(json.dumps(messages))
    contextstash.run("import", contextstash.folder / "calls.json")
    command = contextstash.run("search", words, "--limit", "1").stdout.splitlines()[-1].strip()
    shown = contextstash.run(*command.removeprefix("contextstash ").split()).stdout
    assert command.endswith(" --call")
    assert words.split()[0][:5] in shown.lower()


def test_snippets_keep_the_lines_of_the_text(orchard: Orchard) -> None:
    shown = orchard.run("search", "tree 733", "--limit", "1").stdout.splitlines()
    assert any(line.startswith("  tree 733: ") for line in shown)
    assert "\n" not in orchard.json("search", "tree 733")["hits"][0]["snippet"]


def test_a_long_line_is_cut_around_the_words_that_match() -> None:
    text = "a" * 300 + " quince " + "b" * 300
    shown = around_match(text, ["quince"], 60)
    assert len(shown) == 60
    assert " quince " in shown
    assert (shown[0], shown[-1]) == ("…", "…")
    assert around_match("short quince", ["quince"], 60) == "short quince"


def test_a_handle_is_said_to_be_what_it_is_instead_of_searched_for(orchard: Orchard) -> None:
    [hit, *_] = orchard.json("search", "tree 733")["hits"]
    handle = hit["handle"]
    [line] = orchard.run("search", handle).stdout.splitlines()
    assert line.startswith(f"{handle} is an output of Read, 121 lines, ")
    assert line.endswith(f", message {hit['seq'] - 1} of session {orchard.session}: contextstash show {handle}")
    assert "There is no output" in failure_of(orchard.run("search", "out_nosuchnosuchnosu"))


def test_a_session_is_found_by_its_title(orchard: Orchard) -> None:
    first = orchard.run("search", "reading", "ORCHARD").stdout.splitlines()[0]
    assert first == f"session {orchard.session[:8]}  Reading the orchard"
    assert not orchard.run("search", "reading", "pears").stdout.startswith("session")


def test_nothing_found_says_why(orchard: Orchard) -> None:
    nothing = {
        ("zzyzx",): "no text has any of these words",
        ("tree 733", "--tool", "Grep"): "Nothing found in calls of 'Grep'. These words are found in calls of Read.",
        ("tree 733", "--since", "2999-01-01"): "These words are found from 2026-03-03 to 2026-03-03.",
    }
    for arguments, why in nothing.items():
        done = orchard.run("search", *arguments)
        assert (done.returncode, done.stdout) == (0, "")
        assert why in done.stderr
    swapped = orchard.run("search", "tree", "--since", "2026-05-02", "--until", "2026-05-01")
    assert swapped.returncode == 2
    assert "no time is between them" in swapped.stderr


def test_a_search_in_an_empty_database_says_that_nothing_is_recorded(contextstash: CommandLine) -> None:
    with open_stash_sync(contextstash.database):
        pass
    assert "Nothing is recorded yet" in contextstash.run("search", "tree").stderr


def test_a_line_that_begins_with_a_speaker_or_a_heading_is_printed_word_for_word(contextstash: CommandLine) -> None:
    path = contextstash.folder / "session.jsonl"
    write_transcript(path, outputs=1)
    lines = path.read_text().replace("Read all the orchard files.", "**Developer on main**: read the quinces.")
    path.write_text(lines)
    assert contextstash.run("import", path).returncode == 0
    found = contextstash.run("search", "quinces").stdout
    assert "  **Developer on main**: read the quinces." in found
    assert "“**Developer" not in found
