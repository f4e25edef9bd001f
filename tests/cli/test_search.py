"""`contextstash search`: finding words in what was recorded."""

from __future__ import annotations

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
