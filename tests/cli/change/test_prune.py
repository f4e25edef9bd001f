"""`contextstash prune`: archiving old tool outputs."""

from __future__ import annotations

from tests.support.orchard import Orchard


def test_a_dry_run_changes_nothing(orchard: Orchard) -> None:
    before = orchard.json("status")["estimate"]["tokens"]
    assert orchard.json("prune", orchard.session, "--keep-last", "0", "--dry-run")["tokens_saved"] > 0
    assert orchard.json("status")["estimate"]["tokens"] == before


def test_prune_and_status_say_by_which_count_they_name_the_view(orchard: Orchard) -> None:
    done = orchard.run("prune", orchard.session, "--keep-last", "2", "--dry-run").stdout
    assert "tokens in contextstash's view, as counted" in done
    assert "by its own count. prune and compact change this view" in " ".join(orchard.run("status").stdout.split())


def test_a_prune_that_can_do_nothing_names_one_that_can_and_what_it_frees(orchard: Orchard) -> None:
    [line] = [each for each in orchard.run("prune", orchard.session).stdout.splitlines() if "Nothing done" in each]
    could = orchard.json("prune", orchard.session, "--keep-last", "5", "--dry-run")
    assert len(could["archived"]) == 7
    assert (
        f"contextstash prune {orchard.session[:8]} --keep-last 5 would archive 7 outputs and free"
        f" {could['tokens_saved']:,} of {could['tokens_before']:,} tokens" in line
    )
    assert "Pass " not in line
    assert orchard.json("status")["outputs_archived"] == 0


def test_a_prune_says_how_to_undo_it_and_that_undoes_all_of_it(orchard: Orchard) -> None:
    before = orchard.json("status")["estimate"]["view_tokens"]
    last = orchard.run("prune", orchard.session, "--keep-last", "2").stdout.splitlines()[-1]
    assert last == f"To undo: contextstash restore {orchard.session[:8]} --last"
    assert orchard.run(*last.removeprefix("To undo: contextstash ").split()).returncode == 0
    status = orchard.json("status")
    assert (status["outputs_archived"], status["estimate"]["view_tokens"]) == (0, before)
