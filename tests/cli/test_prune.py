"""`contextstash prune`: archiving old tool outputs."""

from __future__ import annotations

from tests.support.orchard import Orchard


def test_a_dry_run_changes_nothing(orchard: Orchard) -> None:
    before = orchard.json("status")["estimate"]["tokens"]
    assert orchard.json("prune", orchard.session, "--keep-last", "0", "--dry-run")["tokens_saved"] > 0
    assert orchard.json("status")["estimate"]["tokens"] == before
