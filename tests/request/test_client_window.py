"""The window of a client after a compaction: valid, within its room, and told in places of the client's own list."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contextstash.request.handoff import (
    ClientCall,
    ClientMessage,
    ClientResult,
    plan_tail,
    window_of,
)
from tests.support.client_files import applied


def count(text: str) -> int:
    """A token for each word."""
    return len(text.split())


def said(role: str, words: int) -> ClientMessage:
    return ClientMessage("", role, "word " * words)


def step(number: int, calls: int, words: int) -> list[ClientMessage]:
    """A reply with some calls, and their results, as Claude Code lists them: a message each."""
    names = [f"{number}-{call}" for call in range(calls)]
    asked = [ClientMessage("", "assistant", "", (ClientCall(name, "Bash", "make"),)) for name in names]
    return asked + [ClientMessage("", "user", "", (), (ClientResult(name, "out " * words),)) for name in names]


sizes = st.integers(0, 400)
conversations = st.lists(
    st.one_of(
        st.tuples(st.just("said"), st.sampled_from(["user", "assistant"]), sizes),
        st.tuples(st.just("step"), st.integers(1, 3), sizes),
    ),
    max_size=20,
).map(
    lambda drawn: [
        message
        for number, (kind, which, words) in enumerate(drawn)
        for message in ([said(str(which), words)] if kind == "said" else step(number, int(which), words))
    ]
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(conversations, st.integers(0, 2_000))
def test_each_result_has_its_call_and_what_has_no_reply_stays_whole(messages: list[ClientMessage], room: int) -> None:
    first, shortened = plan_tail(messages, room, count, pinned=())
    window = window_of(messages, ["hand-off"], range(first, len(messages)), dict.fromkeys(shortened, "short"))
    shown = applied(messages, window)
    called: set[str] = set()
    for message in shown:
        assert all(result.id in called for result in message.results)
        called |= {call.id for call in message.calls}
    answered = {result.id for message in shown for result in message.results}
    assert called <= answered or not messages
    newest = len(messages)
    while newest and messages[newest - 1].role == "user":
        newest -= 1
    for place in range(newest, len(messages)):
        assert {"at": place} in window or messages[place].is_empty


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(conversations, st.integers(0, 2_000))
def test_the_tail_takes_no_more_than_its_room_beside_what_has_no_reply(
    messages: list[ClientMessage], room: int
) -> None:
    first, shortened = plan_tail(messages, room, count, pinned=())
    short = dict.fromkeys(shortened, "word " * 60)
    shown = applied(messages, window_of(messages, [], range(first, len(messages)), short))
    replied = next((place for place in range(len(shown), 0, -1) if shown[place - 1].role == "assistant"), 0)
    calls = {result.id for message in shown[replied:] for result in message.results}
    older = [message for message in shown[:replied] if not any(call.id in calls for call in message.calls)]
    assert sum(message.tokens(count) for message in older if not message.results) <= room


def test_older_results_become_placeholders_and_pinned_ones_do_not() -> None:
    messages = [said("user", 10), *step(1, 1, 300), *step(2, 1, 300), *step(3, 1, 300), said("assistant", 5)]
    assert plan_tail(messages, 800, count, pinned=())[1] == {"1-0", "2-0"}
    assert plan_tail(messages, 800, count, pinned={"2-0"})[1] == {"1-0"}


def test_a_message_is_named_by_its_place_and_says_which_results_changed() -> None:
    messages = [said("user", 1), *step(1, 1, 100), ClientMessage("", "assistant", "")]
    assert window_of(messages, ["ours"], range(4), {"1-0": "short"}) == [
        {"role": "user", "text": "ours"},
        {"at": 0},
        {"at": 1},
        {"at": 2, "results": {"1-0": "short"}},
    ]
