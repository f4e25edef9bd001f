"""What an edit does to the thinking after it, for models whose API checks the messages before it."""

from __future__ import annotations

from contextstash.session.thinking_blocks import DROP_REQUEST
from contextstash.view.compaction_plan import CompactPlan, plan_without_thinking
from contextstash.view.view import Entry
from contextstash_storage.records import Block, Message
from tests.support.handmade_views import message, text


def thought(seq: int, tokens: int = 30) -> Message:
    return message(seq, "assistant", Block(type="thinking", tokens=tokens), text(10))


def test_the_request_that_makes_the_provider_drop_thinking_is_complete() -> None:
    binding = {"prefix_mismatch_behavior": "drop_block"}
    assert DROP_REQUEST["thinking"] == {"type": "adaptive", "block_binding": binding}
    assert DROP_REQUEST["betas"] == ["thinking-binding-controls-2026-08-01"]


def plan(kept: list[Message]) -> CompactPlan:
    covered = [Entry(message=message(seq, "user", text(50))) for seq in range(4)]
    return CompactPlan(tuple(covered), tuple(Entry(message=each) for each in kept), "")


def test_a_compaction_cuts_later_if_it_keeps_most_messages() -> None:
    kept = [message(4, "user", text(20)), thought(5, 20), *(message(seq, "user", text(40)) for seq in range(6, 10))]
    moved = plan_without_thinking(plan(kept))
    assert [entry.first_seq for entry in moved.kept] == [6, 7, 8, 9]


def test_it_does_not_if_it_would_lose_more_than_half_of_what_is_kept() -> None:
    kept = [*(message(seq, "user", text(40)) for seq in range(4, 9)), thought(9), message(10, "user", text(40))]
    assert plan_without_thinking(plan(kept)) == plan(kept)
