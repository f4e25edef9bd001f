"""`contextstash prune` and `restore`: archiving old tool outputs, and undoing prunes and compactions."""

from __future__ import annotations

from tests.support.command_line import WINDOW, Orchard, failure_of


def test_prune_and_status_say_whose_window_they_name(orchard: Orchard) -> None:
    done = orchard.run("prune", orchard.session, "--keep-last", "2", "--dry-run").stdout
    assert done.startswith("Your window is unchanged: your client sends ")
    assert "by its own count. A prune or compaction changes this view" in orchard.run("status").stdout


def test_a_prune_that_can_do_nothing_names_the_options_that_can_and_takes_the_newest_session(orchard: Orchard) -> None:
    shown = orchard.run("prune").stdout
    assert "Pass --keep-last or --protect-tokens to prune more" in shown
    assert "keep_last" not in shown
    assert orchard.json("status")["outputs_archived"] == 0


def test_a_prune_says_how_to_undo_it_and_that_undoes_all_of_it(orchard: Orchard) -> None:
    before = orchard.json("status")["estimate"]["view_tokens"]
    last = orchard.run("prune", orchard.session, "--keep-last", "2").stdout.splitlines()[-1]
    assert last == f"To undo: contextstash restore {orchard.session} --last"
    assert orchard.run(*last.removeprefix("To undo: contextstash ").split()).returncode == 0
    status = orchard.json("status")
    assert (status["outputs_archived"], status["estimate"]["view_tokens"]) == (0, before)


def test_the_last_change_is_undone_alone_and_then_the_one_before_it(orchard: Orchard) -> None:
    full = orchard.json("prune", orchard.session, "--keep-last", "6")
    pruned = orchard.json("prune", orchard.session, "--keep-last", "2")
    compacted = orchard.json("compact", orchard.session, *WINDOW)
    assert orchard.json("restore", orchard.session, "--last")["tokens_after"] == compacted["tokens_before"]
    assert orchard.json("restore", "--last", orchard.session)["tokens_after"] == pruned["tokens_before"]
    assert orchard.json("restore", "--last")["tokens_after"] == full["tokens_before"]
    assert "Nothing to undo" in failure_of(orchard.run("restore", "--last"))


def test_what_is_no_handle_is_named_without_a_word_about_servers(orchard: Orchard) -> None:
    for wrong in ((), ("nonsense",), ("a", "b", "--last")):
        assert "Pass handles of outputs (out_…)" in failure_of(orchard.run("restore", *wrong))
    assert failure_of(orchard.run("restore", "sum_nonsense")).startswith("There is no output or summary 'sum_nonsense'")
    assert "server" not in failure_of(orchard.run("restore", "sum_nonsense"))


def test_an_output_that_contextstash_did_not_archive_is_said_to_be_none_of_its(orchard: Orchard) -> None:
    handle = orchard.json("show", "--message", "2")["handles"][0]
    assert (
        f"{handle} was not archived by contextstash: contextstash show {handle}"
        in orchard.run("restore", handle).stdout
    )
