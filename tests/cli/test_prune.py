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
    assert "prune and compact name our own count" in " ".join(orchard.run("status").stdout.split())
