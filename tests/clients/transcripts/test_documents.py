"""What is new in a transcript that is read whole."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from contextstash.clients.transcripts import State, unseen
from contextstash.record.transcript_records import TranscriptMessage

names = st.lists(st.integers(0, 2_000), unique=True, max_size=60)


def said(*keys: object) -> list[TranscriptMessage]:
    return [TranscriptMessage(body={"role": "user", "content": str(key)}, key=str(key)) for key in keys]


def new_keys(messages: list[TranscriptMessage], state: State) -> list[str | None]:
    return [message.key for message in unseen(messages, state)]


@given(keys=names, cuts=st.lists(st.integers(0, 60), max_size=6))
def test_a_transcript_that_grows_gives_each_message_once(keys: list[int], cuts: list[int]) -> None:
    state: State = {}
    found: list[str | None] = []
    for end in [*sorted(min(cut, len(keys)) for cut in cuts), len(keys)]:
        found += new_keys(said(*keys[:end]), state)
        assert new_keys(said(*keys[:end]), state) == []
    assert found == [str(key) for key in keys]


@given(kept=st.integers(0, 20), gone=st.integers(1, 20), new=st.integers(1, 20))
def test_messages_that_took_the_place_of_others_take_the_conversation_back(kept: int, gone: int, new: int) -> None:
    state: State = {}
    unseen(said(*range(kept + gone)), state)
    first, *rest = unseen(said(*range(kept), *range(1_000, 1_000 + new)), state)
    assert first.rewind_to_key == (str(kept - 1) if kept else "")
    assert all(message.rewind_to_key is None for message in rest)
    assert len(rest) == new - 1


def test_messages_that_only_moved_are_not_taken_back() -> None:
    state: State = {}
    unseen(said("a", "b", "c"), state)
    [first, *_] = unseen(said("a", "summary", "b", "c"), state)
    assert (first.key, first.rewind_to_key) == ("summary", None)


def test_nine_characters_are_remembered_of_each_message() -> None:
    state: State = {}
    unseen(said(*range(5_000)), state)
    assert new_keys(said(*range(5_001)), state) == ["5000"]
    assert len(json.dumps(state)) < 9 * 5_001 + 20
