"""What refilled the window, whether it is too small, and when another compaction is worth it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextstash.window.refills import (
    UNRECORDED,
    compactions_of,
    rapid_compactions,
    refill_advice,
    refill_sentence,
    worth_trying,
)
from contextstash_storage.records import Event, Output, Part
from tests.support.turns import laws

USABLE = 100_000


def event(seq: int, before: int = 1, after: int = 1, kind: str = "compaction") -> Event:
    return Event.model_validate(
        {"kind": kind, "tokens_before": before, "tokens_after": after, "reason": "", "seq": seq}
    )


def test_compactions_within_a_few_messages_are_counted() -> None:
    assert rapid_compactions([10, 14, 80, 86, 200]) == 2
    assert rapid_compactions([10, 60, 120]) == 0
    assert rapid_compactions([]) == 0


def test_one_large_output_is_no_reason_to_advise_a_larger_window() -> None:
    assert refill_advice(1, 60_000) is None
    assert "--window 90k" in str(refill_advice(2, 60_000))


def test_a_hand_off_and_the_compaction_before_it_are_one() -> None:
    both = [event(10), event(11, kind="handoff"), event(60), event(61, kind="handoff")]
    assert rapid_compactions(compactions_of(both)) == 0
    assert compactions_of([event(10), event(12, kind="prune")]) == [10]


def output(handle: str, tokens: int, tool: str = "bash") -> Output:
    return Output(handle=handle, seq=7, block=0, tool=tool, tokens=tokens, characters=4 * tokens, lines=1, sha256="00")


THEN = {Part.TOOL_RESULTS: 2_000, Part.ASSISTANT: 5_000, Part.SUMMARIES: 3_000, UNRECORDED: 1_000}
NOW = {Part.TOOL_RESULTS: 100_000, Part.ASSISTANT: 20_000, Part.SUMMARIES: 3_000, UNRECORDED: 8_000}


def test_the_refill_is_described_by_part_with_the_largest_output() -> None:
    said = refill_sentence(THEN, NOW, messages=41, outputs=[output("out_a", 9_000), output("out_b", 59_000)])
    assert said == (
        "Since the last compaction, 41 messages ago, 120,000 tokens were added: tool results 98,000 (out_b of bash"
        " alone 59,000), assistant 15,000, system prompt, tool definitions and other unlogged text 7,000."
    )


def test_what_did_not_grow_is_left_out() -> None:
    said = refill_sentence({Part.TOOL_RESULTS: 90, Part.USER: 5}, {Part.USER: 9, Part.ARCHIVED: 0}, messages=1)
    assert said == "Since the last compaction, 1 message ago, 4 tokens were added: user 4."
    assert refill_sentence(NOW, NOW, messages=1) is None


@pytest.mark.parametrize(("tokens", "named"), [(199, False), (200, True), (700, True), (701, False)])
def test_an_output_of_a_fifth_of_the_growth_is_named_if_it_can_be_in_the_view(tokens: int, named: bool) -> None:
    now: dict[str, int] = {Part.TOOL_RESULTS: 700, Part.USER: 300}
    assert ("out_x" in str(refill_sentence({}, now, messages=2, outputs=[output("out_x", tokens)]))) is named


def test_a_tool_s_name_cannot_forge_a_marker() -> None:
    said = refill_sentence({}, {Part.TOOL_RESULTS: 9}, messages=2, outputs=[output("out_x", 8, "[contextstash\n")])
    assert "[contextstash" not in str(said)


POOR, GOOD, MIDDLING = event(100, 82_000, 79_000), event(200, 82_000, 30_000), event(300, 82_000, 74_000)


def test_the_first_attempt_and_one_after_a_good_one_are_worth_it() -> None:
    assert worth_trying([], 82_000, 10, USABLE)
    assert worth_trying([GOOD], 30_100, 201, USABLE)
    assert worth_trying([POOR, POOR, GOOD], 30_100, 201, USABLE)
    assert worth_trying([MIDDLING], 74_100, 301, USABLE)


@pytest.mark.parametrize(("poor", "share"), [(1, 5), (2, 10), (3, 20), (4, 40), (5, 40), (12, 40)])
def test_after_poor_ones_the_context_must_grow_first_by_twice_as_much_each_time(poor: int, share: int) -> None:
    attempts = [event(100 + 20 * place, 21_000, 20_000) for place in range(poor)]
    enough = 20_000 + share * USABLE // 100
    assert not worth_trying(attempts, enough - 1, 1_000, USABLE)
    assert worth_trying(attempts, enough, 1_000, USABLE)


def test_a_middling_one_leaves_the_wait_as_it_is() -> None:
    assert not worth_trying([POOR, MIDDLING], 78_999, 310, USABLE)
    assert worth_trying([POOR, MIDDLING], 79_000, 310, USABLE)


def test_without_a_new_message_another_attempt_is_not_worth_it() -> None:
    assert not worth_trying([POOR], 90_000, 100, USABLE)


def test_a_context_over_the_usable_window_waits_at_most_ten_messages() -> None:
    attempts = [event(100, 100_500, 99_500)] * 4
    assert not worth_trying(attempts, 100_400, 109, USABLE)
    assert worth_trying(attempts, 100_400, 110, USABLE)


drawn = st.lists(
    st.builds(event, st.integers(0, 500), st.integers(0, 120_000), st.integers(0, 120_000)), max_size=12
).map(lambda attempts: sorted(attempts, key=lambda attempt: attempt.seq))


@laws
@given(drawn, st.integers(0, USABLE), st.integers(0, USABLE))
def test_an_attempt_that_is_worth_it_stays_so_as_the_context_grows(
    attempts: list[Event], tokens: int, more: int
) -> None:
    if worth_trying(attempts, tokens, 700, USABLE):
        assert worth_trying(attempts, tokens + more, 700, USABLE)


@laws
@given(drawn)
def test_growth_by_two_fifths_of_usable_is_always_enough(attempts: list[Event]) -> None:
    last = attempts[-1].tokens_after if attempts else 0
    assert worth_trying(attempts, last + 40_000, 700, USABLE)
