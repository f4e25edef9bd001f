"""Where a session is split for its summary."""

from __future__ import annotations

from contextstash.view.compaction_plan import KeepLimits, outputs_to_archive, plan_compaction
from contextstash.view.ladder import PLACEHOLDER_TOKENS, enough_to_free, visible_outputs
from contextstash.view.view import Entry
from tests.support.handmade_views import call, loop, message, outputs_of, result, text
from tests.support.stored_edits import summarizing


def words(count: int, tokens: int = 100) -> list[Entry]:
    roles = ("user", "assistant")
    return [Entry(message=message(seq, roles[seq % 2], text(tokens))) for seq in range(count)]


def test_at_most_half_is_kept_so_that_a_short_session_shrinks_too() -> None:
    assert len(plan_compaction(words(6), KeepLimits(20_000, 0)).kept) == 3


def test_a_call_and_its_result_stay_on_one_side() -> None:
    entries = loop([50, 50, 50, 50])
    for keep in range(len(entries)):
        plan = plan_compaction(entries, KeepLimits(0, keep))
        kept = plan.kept[0].message if plan.covered and plan.kept else None
        assert kept is None or not any(block.type == "tool_result" for block in kept.blocks)


def test_an_open_call_at_the_end_is_kept() -> None:
    entries = [*words(6), Entry(message=message(6, "user", text(5))), Entry(message=message(7, "assistant", call("c")))]
    plan = plan_compaction(entries, KeepLimits(0, 0))
    assert plan.last_seq < 7


def test_a_session_that_is_one_open_call_cannot_be_split() -> None:
    plan = plan_compaction([Entry(message=message(0, "assistant", call("c")))], KeepLimits(0, 0))
    assert plan.covered == ()
    assert plan.reason.startswith("Nothing done")


def test_a_new_summary_builds_on_the_last_one() -> None:
    summary = Entry(summary=summarizing(0, 9, tokens=50))
    later = [Entry(message=message(seq, ("user", "assistant")[seq % 2], text(100))) for seq in range(10, 20)]
    plan = plan_compaction([summary, *later], KeepLimits(200, 0))
    assert (plan.first_seq, plan.last_seq) == (0, 17)


def test_summaries_alone_are_not_summarized_again() -> None:
    summary = Entry(summary=summarizing(0, 9, tokens=50))
    tail = [Entry(message=message(10, "assistant", call("a"))), Entry(message=message(11, "tool", result("a", 900)))]
    plan = plan_compaction([summary, *tail], KeepLimits(0, 2))
    assert plan.covered == ()
    assert "only summaries" in plan.reason


def test_either_tokens_or_messages_are_kept_as_the_rolling_design_does() -> None:
    assert len(plan_compaction(words(40), KeepLimits(400, 10, either=True)).kept) == 4
    assert len(plan_compaction(words(40), KeepLimits(0, 5, either=True)).kept) == 5
    assert plan_compaction(words(4), KeepLimits(400, 5, either=True)).covered == ()


def test_with_levels_an_earlier_summary_stays_next_to_the_new_one() -> None:
    summary = Entry(summary=summarizing(0, 9, tokens=50))
    later = [Entry(message=message(seq, ("user", "assistant")[seq % 2], text(100))) for seq in range(10, 20)]
    plan = plan_compaction([summary, *later], KeepLimits(200, 0, levels=True))
    assert (plan.first_seq, plan.last_seq) == (10, 17)


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


def test_no_output_becomes_a_placeholder_without_a_limit_for_whole_messages() -> None:
    entries = loop([500] * 4)
    assert outputs_to_archive(entries, KeepLimits(100, 0), outputs_of(entries)) == ()


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


def test_the_first_request_alone_is_not_summarized() -> None:
    entries = [Entry(message=message(0, "user", text(1_500))), *loop([3_000])[1:]]
    plan = plan_compaction(entries, KeepLimits(4_000, 2, request=2_000))
    assert plan.covered == ()
    assert "only the first request" in plan.reason
    assert len(plan_compaction(entries, KeepLimits(4_000, 2, request=1_000)).covered) == 1
