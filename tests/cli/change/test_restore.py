"""`contextstash restore`: undoing prunes and compactions."""

from __future__ import annotations

from tests.support.command_line import failure_of
from tests.support.orchard import WINDOW, Orchard


def test_the_last_change_is_undone_alone_and_then_the_one_before_it(orchard: Orchard) -> None:
    full = orchard.json("prune", orchard.session, "--keep-last", "6")
    pruned = orchard.json("prune", orchard.session, "--keep-last", "2")
    compacted = orchard.json("compact", orchard.session, *WINDOW)
    assert orchard.json("restore", orchard.session, "--last")["tokens_after"] == compacted["tokens_before"]
    assert orchard.json("restore", "--last", "--session", orchard.session)["tokens_after"] == pruned["tokens_before"]
    assert orchard.json("restore", "--last")["tokens_after"] == full["tokens_before"]
    assert "Nothing to undo" in failure_of(orchard.run("restore", "--last"))


def test_what_is_no_handle_is_named_without_a_word_about_servers(orchard: Orchard) -> None:
    assert failure_of(orchard.run("restore", "nonsense")).startswith("There is no output or summary 'nonsense'.")
    assert failure_of(orchard.run("restore", "sum_nonsense")).startswith("There is no output or summary 'sum_nonsense'")
    assert "server" not in failure_of(orchard.run("restore", "sum_nonsense"))


def test_an_output_that_contextstash_did_not_archive_is_said_to_be_none_of_its(orchard: Orchard) -> None:
    handle = orchard.json("show", "--message", "2")["handles"][0]
    assert (
        f"{handle} was not archived by contextstash: contextstash show {handle}"
        in orchard.run("restore", handle).stdout
    )
