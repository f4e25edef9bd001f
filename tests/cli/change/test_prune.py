"""`contextstash prune`: archiving old tool outputs."""

from __future__ import annotations

from tests.support.orchard import Orchard


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
    assert last == f"To undo: contextstash restore --last --session {orchard.session}"
    assert orchard.run(*last.removeprefix("To undo: contextstash ").split()).returncode == 0
    status = orchard.json("status")
    assert (status["outputs_archived"], status["estimate"]["view_tokens"]) == (0, before)
