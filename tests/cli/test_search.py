"""`contextstash search`: finding words in what was recorded."""

from __future__ import annotations

from tests.support.orchard import Orchard


def test_search_finds_an_output_by_a_line_in_it(orchard: Orchard) -> None:
    [hit, *_] = orchard.json("search", "tree 733")["hits"]
    shown = orchard.run("show", hit["handle"]).stdout
    assert "tree 733:" in shown


def test_several_words_need_no_quotes(orchard: Orchard) -> None:
    assert orchard.run("search", "tree", "733").stdout == orchard.run("search", "tree 733").stdout != ""
