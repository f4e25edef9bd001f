"""A window that is full again a few turns after each compaction is too small, and its user is told."""

from __future__ import annotations

from contextstash.window.refill_diagnosis import compactions_of, rapid_compactions, refill_advice
from contextstash_storage.records import Event


def event(kind: str, seq: int) -> Event:
    return Event.model_validate({"kind": kind, "tokens_before": 1, "tokens_after": 1, "reason": "", "seq": seq})


def test_compactions_within_a_few_messages_are_counted() -> None:
    assert rapid_compactions([10, 14, 80, 86, 200]) == 2
    assert rapid_compactions([10, 60, 120]) == 0
    assert rapid_compactions([]) == 0


def test_one_large_output_is_no_reason_to_advise_a_larger_window() -> None:
    assert refill_advice(1, 60_000) is None
    assert "Try --window 90k" in str(refill_advice(2, 60_000))


def test_a_hand_off_and_the_compaction_before_it_are_one() -> None:
    both = [event("compaction", 10), event("handoff", 11), event("compaction", 60), event("handoff", 61)]
    assert rapid_compactions(compactions_of(both)) == 0
    assert compactions_of([event("compaction", 10), event("prune", 12)]) == [10]
