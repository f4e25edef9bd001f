"""A list that is read a second time gives what it would have given the first time, whatever was changed in it."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from contextstash.library.message_list import MessageList
from contextstash.library.replies import as_natives
from tests.support.effort import examples

PARTS = st.fixed_dictionaries({"type": st.just("text"), "text": st.text(max_size=3)}, optional={"n": st.booleans()})
MESSAGES = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["user", "assistant"]),
        "content": st.one_of(st.text(max_size=3), st.none(), st.lists(PARTS, max_size=2)),
    },
    optional={"tool_calls": st.none(), "n": st.sampled_from([0, 1, True, 1.0])},
)


@settings(max_examples=examples(200))
@given(lists=st.lists(st.lists(MESSAGES, max_size=3), min_size=2, max_size=4), place=st.integers(0, 2), value=st.text())
def test_what_was_read_before_changes_nothing(lists: list[list[dict[str, Any]]], place: int, value: str) -> None:
    known = MessageList()
    for messages in lists:
        for _ in range(2):
            assert repr(known.natives(messages)) == repr(as_natives(messages))
        if place < len(messages):
            messages[place]["content"] = value  # in place, as programs mark their last message for the cache
            assert repr(known.natives(messages)) == repr(as_natives(messages))


def test_what_a_program_did_not_change_is_not_copied() -> None:
    known, messages = MessageList(), [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    for _ in range(2):
        assert all(native is message for native, message in zip(known.natives(messages), messages, strict=True))
