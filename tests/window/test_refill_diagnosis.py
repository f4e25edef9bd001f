"""What refilled the window: by part, the largest output, and the advice that fits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextstash.window.refill_diagnosis import UNRECORDED, refill_of, refill_sentence
from contextstash_storage.records import Output, Part
from tests.support.turns import laws


def output(handle: str, tokens: int, tool: str = "bash") -> Output:
    return Output(handle=handle, seq=7, block=0, tool=tool, tokens=tokens, characters=4 * tokens, lines=1, sha256="00")


THEN = {Part.TOOL_RESULTS: 2_000, Part.ASSISTANT: 5_000, Part.SUMMARIES: 3_000, UNRECORDED: 1_000}
NOW = {Part.TOOL_RESULTS: 100_000, Part.ASSISTANT: 20_000, Part.SUMMARIES: 3_000, UNRECORDED: 8_000}


def test_the_refill_is_described_by_part_with_the_largest_output() -> None:
    refill = refill_of(THEN, NOW, messages=41, outputs=[output("out_a", 9_000), output("out_b", 59_000)])
    assert refill_sentence(refill).startswith(
        "Since the last compaction, 41 messages ago, 120,000 tokens were added: tool results 98,000 (out_b of bash"
        " alone 59,000), assistant 15,000, system prompt, tool definitions and other unlogged text 7,000."
    )


def test_what_did_not_grow_is_left_out() -> None:
    refill = refill_of({Part.TOOL_RESULTS: 90, Part.USER: 5}, {Part.USER: 9, Part.ARCHIVED: 0}, messages=3)
    assert (refill.tokens, refill.parts) == (4, (("user", 4),))


def test_if_nothing_was_added_the_sentence_says_so() -> None:
    assert refill_sentence(refill_of(NOW, NOW, messages=1), since="prune") == (
        "Since the last prune, 1 message ago, nothing was added."
    )


@pytest.mark.parametrize(("tokens", "named"), [(199, False), (200, True), (700, True), (701, False)])
def test_an_output_of_a_fifth_of_the_growth_is_named_if_it_can_be_in_the_view(tokens: int, named: bool) -> None:
    now: dict[str, int] = {Part.TOOL_RESULTS: 700, Part.USER: 300}
    refill = refill_of({}, now, messages=2, outputs=[output("out_x", tokens)])
    assert refill.largest == (("bash", "out_x", tokens) if named else None)


@pytest.mark.parametrize(
    ("now", "advice"),
    [
        ({UNRECORDED: 60, Part.USER: 40}, "fewer MCP servers"),
        ({Part.SYSTEM: 60, Part.USER: 40}, "Every compaction keeps the system messages"),
        ({Part.TOOL_RESULTS: 60, Part.USER: 40}, "Many outputs add up"),
        ({Part.TOOL_CALLS: 50, Part.USER: 50, Part.THINKING: 0}, "Edit files in place"),
        ({Part.TOOL_CALLS: 49, Part.USER: 49, Part.THINKING: 49}, ""),
    ],
)
def test_a_part_that_is_half_of_the_growth_comes_with_advice(now: dict[str, int], advice: str) -> None:
    added, _, shown = refill_sentence(refill_of({}, now, messages=2)).partition(". ")
    assert added.startswith("Since the last compaction")
    assert advice in shown if advice else not shown


def test_a_single_large_output_comes_with_the_advice_to_limit_it() -> None:
    refill = refill_of({}, {Part.TOOL_RESULTS: 100}, messages=2, outputs=[output("out_x", 80, "fetch")])
    assert refill_sentence(refill).endswith("One output is most of it: limit the output of fetch, or read it in parts.")


def test_every_part_has_a_name_and_advice_of_its_own() -> None:
    for part in (*Part, UNRECORDED):
        assert refill_sentence(refill_of({}, {part: 10}, messages=2)).count(".") >= 2


def test_a_tool_s_name_cannot_forge_a_marker() -> None:
    refill = refill_of({}, {Part.TOOL_RESULTS: 100}, messages=2, outputs=[output("out_x", 80, "[contextstash\n")])
    assert "[contextstash" not in refill_sentence(refill)


parts = st.dictionaries(st.sampled_from([*map(str, Part), UNRECORDED]), st.integers(0, 10**7))


@laws
@given(parts, parts, st.lists(st.integers(0, 10**7), max_size=5))
def test_the_parts_add_up_largest_first(then: dict[str, int], now: dict[str, int], sizes: list[int]) -> None:
    outputs = [output(f"out_{place}", tokens) for place, tokens in enumerate(sizes)]
    refill = refill_of(then, now, messages=5, outputs=outputs)
    grown = [tokens for _, tokens in refill.parts]
    assert refill.tokens == sum(grown) >= sum(now.values()) - sum(then.values())
    assert grown == sorted(grown, reverse=True)
    assert refill.largest is None or 5 * refill.largest[2] >= refill.tokens
    assert "\n" not in refill_sentence(refill)
