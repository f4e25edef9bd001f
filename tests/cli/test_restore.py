"""`contextstash restore`: undoing prunes and compactions."""

from __future__ import annotations

from tests.support.orchard import WINDOW, Orchard


def test_a_compaction_is_undone_by_restoring_its_summary(orchard: Orchard) -> None:
    compacted = orchard.json("compact", orchard.session, *WINDOW)
    assert compacted["tokens_after"] < compacted["tokens_before"]
    restored = orchard.json("restore", compacted["summary_id"], "--session", orchard.session)
    assert restored["tokens_after"] == compacted["tokens_before"]
