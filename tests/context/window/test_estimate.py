"""Running counters: updated with each message, anchored on the usage that the provider reports."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from contextstash.context.window.estimate import breakdown, count_message, estimate, growth_ratio
from contextstash.context.window.settings import ContextSettings
from contextstash_storage.records import Block, Counters, NewMessage, Part, Role, Usage

SETTINGS = ContextSettings()
ROLES: tuple[Role, ...] = ("user", "assistant")


def turn(role: Role, tokens: int, prompt: int | None = None, group: str | None = None) -> NewMessage:
    usage = Usage(prompt_tokens=prompt, completion_tokens=tokens) if prompt is not None else None
    return NewMessage(body={}, role=role, blocks=(Block(type="text", tokens=tokens),), usage=usage, group=group)


def fold(*messages: NewMessage) -> Counters:
    counters = Counters()
    for seq, message in enumerate(messages):
        counters = count_message(counters, message, seq)
    return counters


def test_without_a_report_the_view_is_counted() -> None:
    tokens, method = estimate(fold(turn("user", 100), turn("assistant", 50)), SETTINGS, "o200k_base")
    assert (tokens, method) == (150, "counted with o200k_base")


def test_the_last_report_is_the_anchor_and_what_came_after_is_counted() -> None:
    counters = fold(turn("user", 100), turn("assistant", 50, prompt=5_000), turn("user", 30))
    tokens, method = estimate(counters, SETTINGS, "o200k_base")
    assert tokens == 5_000 + 50 + 30
    assert "reported usage (5,050 tokens at message 1) + 30 counted since" in method


def test_a_reply_recorded_in_parts_is_one_report() -> None:
    whole = fold(turn("user", 100), turn("assistant", 50, prompt=5_000, group="msg_1"))
    parts = fold(
        turn("user", 100),
        turn("assistant", 20, prompt=5_000, group="msg_1"),
        turn("assistant", 30, prompt=5_000, group="msg_1"),
    )
    assert estimate(parts, SETTINGS, "c")[0] == estimate(whole, SETTINGS, "c")[0]


def test_reports_calibrate_what_is_counted_next() -> None:
    counters = fold(
        turn("user", 100),
        turn("assistant", 10, prompt=1_000),
        turn("user", 20_000),
        turn("assistant", 10, prompt=31_010),
    )
    assert 1.3 < growth_ratio(counters, SETTINGS) < 1.5
    assert growth_ratio(counters, ContextSettings(anchored=False)) == 1.0


def test_the_part_of_a_reply_before_its_report_is_no_growth_of_its_prompt() -> None:
    counters = fold(
        turn("user", 100),
        turn("assistant", 10, prompt=1_000),
        turn("user", 2_000),
        turn("assistant", 3_000),
        turn("assistant", 10, prompt=3_010),
    )
    assert (counters.true_growth, counters.counted_growth) == (2_000, 2_000)
    assert growth_ratio(counters, SETTINGS) == 1.0


def test_a_prompt_that_fell_does_not_calibrate() -> None:
    counters = fold(
        turn("user", 100), turn("assistant", 10, prompt=90_000), turn("user", 900), turn("assistant", 1, prompt=9_000)
    )
    assert growth_ratio(counters, SETTINGS) == 1.0


def test_a_client_that_sends_its_own_history_has_not_seen_our_edits() -> None:
    counters = fold(turn("user", 10_000), turn("assistant", 10, prompt=12_000))
    pruned = counters.model_copy(update={"parts": {Part.USER: 4_000, Part.ASSISTANT: 10}, "unsent": 6_000})
    assert estimate(pruned, SETTINGS, "c", followed=True)[0] == estimate(counters, SETTINGS, "c")[0]
    assert estimate(pruned, SETTINGS, "c")[0] == estimate(counters, SETTINGS, "c")[0] - 6_000


@given(st.lists(st.tuples(st.sampled_from(ROLES), st.integers(0, 5_000), st.none() | st.integers(1, 200_000))))
def test_the_parts_always_add_up_to_the_estimate(rows: list[tuple[Role, int, int | None]]) -> None:
    counters = fold(*(turn(role, tokens, prompt if role == "assistant" else None) for role, tokens, prompt in rows))
    tokens, _ = estimate(counters, SETTINGS, "c")
    parts = breakdown(counters, tokens)
    assert sum(parts.values()) == tokens
    assert all(count > 0 for count in parts.values())
    assert counters.messages == counters.view_messages == len(rows)
