"""`contextstash search`: finding words in what was recorded."""

from __future__ import annotations

from tests.support.command_line import Orchard


def test_several_words_need_no_quotes(orchard: Orchard) -> None:
    assert orchard.run("search", "tree", "733").stdout == orchard.run("search", "tree 733").stdout != ""


def test_a_search_is_limited_to_a_time(orchard: Orchard) -> None:
    [hit, *_] = orchard.json("search", "tree 733")["hits"]
    found = orchard.json("search", "tree 733", "--since", hit["created_at"][:10])["hits"]
    assert hit["handle"] in [each.get("handle") for each in found]
    assert orchard.json("search", "tree 733", "--since", "2999-01-01")["hits"] == []
    assert "7d, 2026-05-31" in orchard.run("search", "tree 733", "--since", "yesterday").stderr


def test_each_hit_ends_with_the_command_that_shows_it_whole(orchard: Orchard) -> None:
    for words, shown_whole in (("tree 733", "tree 733:"), ("oldest tree", "The quince in row 7 is the oldest tree.")):
        lines = orchard.run("search", words, "--limit", "1").stdout.splitlines()
        command = lines[-1].strip().removeprefix("in full: contextstash ")
        assert shown_whole in orchard.run(*command.split()).stdout
    assert "--message 25" in command


def test_nothing_found_says_why(orchard: Orchard) -> None:
    done = orchard.run("search", "zzyzx")
    assert (done.returncode, done.stdout) == (0, "")
    assert "no text has any of these words" in done.stderr
