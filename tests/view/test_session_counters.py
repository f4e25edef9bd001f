"""Running counters: updated with each message, anchored on the usage that the provider reports."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from contextstash.view.session_counters import breakdown, count_message, estimate
from contextstash.window.settings import ContextSettings
from contextstash_storage.records import Block, Counters, Declared, NewMessage, Part, Role, Usage

SETTINGS = ContextSettings()
ROLES: tuple[Role, ...] = ("user", "assistant")


def turn(role: Role, tokens: int, prompt: int | None = None, group: str | None = None) -> NewMessage:
    usage = Usage(prompt_tokens=prompt, completion_tokens=tokens) if prompt is not None else None
    return NewMessage(body={}, role=role, blocks=(Block(type="text", tokens=tokens),), usage=usage, group=group)


def results(tokens: int) -> NewMessage:
    return NewMessage(body={}, role="tool", blocks=(Block(type="tool_result", tokens=tokens),))


def fold(*messages: NewMessage) -> Counters:
    counters = Counters()
    for seq, message in enumerate(messages):
        counters = count_message(counters, message, seq)
    return counters


def test_the_last_report_is_the_anchor_and_what_came_after_is_counted() -> None:
    unreported = estimate(fold(turn("user", 100), turn("assistant", 50)), SETTINGS, "o200k_base")
    assert unreported == (150, "counted with o200k_base; no usage reported yet")
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


def test_what_leaves_the_view_was_larger_or_smaller_than_counted_by_as_much_as_the_whole() -> None:
    for true, known in ((22_000, True), (19_000, True), (40_000, False)):
        declared = Declared(system=1, tools=2, system_tokens=400, tools_tokens=600)
        counters = fold(turn("user", 100), results(19_890)).model_copy(update={"declared": declared})
        counters = count_message(counters, turn("assistant", 10, prompt=true - 10), 2)
        pruned = counters.model_copy(update={"parts": {Part.USER: 100, Part.TOOL_RESULTS: 4_890, Part.ASSISTANT: 10}})
        gone = 15_000 * (true - 1_000) / 20_000 if known else 15_000
        assert estimate(pruned, SETTINGS, "c")[0] == true - gone
        undeclared = pruned.model_copy(update={"declared": Declared(), "reported_declared": 0})
        assert estimate(undeclared, SETTINGS, "c")[0] == true - 15_000


@given(st.lists(st.tuples(st.sampled_from(ROLES), st.integers(0, 5_000), st.none() | st.integers(1, 200_000))))
def test_the_parts_always_add_up_to_the_estimate(rows: list[tuple[Role, int, int | None]]) -> None:
    counters = fold(*(turn(role, tokens, prompt if role == "assistant" else None) for role, tokens, prompt in rows))
    tokens, _ = estimate(counters, SETTINGS, "c")
    parts = breakdown(counters, tokens)
    assert sum(parts.values()) == tokens
    assert all(count > 0 for count in parts.values())
    assert counters.messages == counters.view_messages == len(rows)
