"""Where a session is split for its summary."""

from __future__ import annotations

import pytest

from contextstash.view.compaction_plan import KeepLimits, outputs_to_archive, plan_compaction
from contextstash.view.ladder import PLACEHOLDER_TOKENS, enough_to_free, visible_outputs
from contextstash.view.view import Entry
from tests.support.handmade_views import call, loop, message, outputs_of, result, text
from tests.support.stored_edits import summarizing


def words(count: int, tokens: int = 100) -> list[Entry]:
    roles = ("user", "assistant")
    return [Entry(message=message(seq, roles[seq % 2], text(tokens))) for seq in range(count)]


@pytest.mark.parametrize(
    ("messages", "keep", "kept"),
    [
        (6, KeepLimits(20_000, 0), 3),
        (40, KeepLimits(400, 10, either=True), 4),
        (40, KeepLimits(0, 5, either=True), 5),
        (4, KeepLimits(400, 5, either=True), 4),
    ],
    ids=["at most half", "by tokens", "by messages if there are no tokens", "too few to split"],
)
def test_how_many_messages_are_kept(messages: int, keep: KeepLimits, kept: int) -> None:
    assert len(plan_compaction(words(messages), keep).kept) == kept


@pytest.mark.parametrize(("levels", "first"), [(False, 0), (True, 10)])
def test_an_earlier_summary_is_covered_too_or_stays_beside_the_new_one(levels: bool, first: int) -> None:
    summary = Entry(summary=summarizing(0, 9, tokens=50))
    later = [Entry(message=message(seq, ("user", "assistant")[seq % 2], text(100))) for seq in range(10, 20)]
    plan = plan_compaction([summary, *later], KeepLimits(200, 0, levels=levels))
    assert (plan.first_seq, plan.last_seq) == (first, 17)


OPEN = [Entry(message=message(0, "assistant", call("c")))]
SUMMARY_AND_STEP = [
    Entry(summary=summarizing(0, 9, tokens=50)),
    Entry(message=message(10, "assistant", call("a"))),
    Entry(message=message(11, "tool", result("a", 900))),
]
REQUEST_AND_STEP = [Entry(message=message(0, "user", text(1_500))), *loop([3_000])[1:]]


@pytest.mark.parametrize(
    ("entries", "keep", "why"),
    [
        (OPEN, KeepLimits(0, 0), "Nothing done"),
        (SUMMARY_AND_STEP, KeepLimits(0, 2), "only summaries"),
        (REQUEST_AND_STEP, KeepLimits(4_000, 2, request=2_000), "only the first request"),
    ],
)
def test_it_says_why_nothing_can_be_summarized(entries: list[Entry], keep: KeepLimits, why: str) -> None:
    plan = plan_compaction(entries, keep)
    assert plan.covered == ()
    assert why in plan.reason


def test_older_outputs_among_the_kept_messages_become_placeholders_so_that_more_messages_fit() -> None:
    entries = loop([500] * 20)
    outputs = outputs_of(entries)
    whole = plan_compaction(entries, KeepLimits(3_000, 0), outputs)
    keep = KeepLimits(3_000, 0, whole=1_500)
    plan = plan_compaction(entries, keep, outputs)
    archived = outputs_to_archive(plan.kept, keep, outputs)
    assert len(plan.kept) > 2 * len(whole.kept)
    assert archived
    left = sum(entry.tokens for entry in plan.kept) - sum(each.view_tokens - PLACEHOLDER_TOKENS for each in archived)
    assert left <= 3_000
    newest_archived = max(each.output.seq for each in archived)
    assert sum(entry.tokens for entry in entries if entry.first_seq > newest_archived) <= 1_500


def test_a_step_that_the_model_has_not_seen_stays_whole_and_alone_if_it_is_large() -> None:
    entries = [*loop([2_000, 2_000]), Entry(message=message(5, "assistant", *(call(f"p{each}") for each in range(6))))]
    entries += [Entry(message=message(6 + each, "tool", result(f"p{each}", 800))) for each in range(6)]
    keep = KeepLimits(1_000, 4, whole=600)
    assert [each.output.seq for each in outputs_to_archive(entries, keep, outputs_of(entries))] == [2, 4]


def test_only_as_many_outputs_become_placeholders_as_must() -> None:
    entries = loop([500] * 10)
    found = [candidate for entry in entries for candidate in visible_outputs(entry, outputs_of(entries))]
    assert [each.output.seq for each in enough_to_free(found, 800)] == [2, 4]
    assert len(enough_to_free(found, 100_000)) == 10
    assert enough_to_free(found, 0) == ()


def test_a_large_output_stays_if_nearly_enough_is_freed_without_it() -> None:
    entries = loop([500] * 8 + [3_000, 400])
    found = [candidate for entry in entries for candidate in visible_outputs(entry, outputs_of(entries))]
    freed = sum(each.view_tokens - PLACEHOLDER_TOKENS for each in found[:8])
    assert len(enough_to_free(found, freed + 400)) == 8
    assert len(enough_to_free(found, freed + 2_000)) == 9
    assert len(enough_to_free(found[8:], 400)) == 1
