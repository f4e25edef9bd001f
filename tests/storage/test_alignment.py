"""Law 7: the same messages recorded twice are stored once, and nothing said anew is taken for a repetition."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from stored_sessions import LONG_ID, answers, calls, conversation, says

from contextstash_storage.alignment import Alignment, align
from contextstash_storage.bodies import fingerprint
from contextstash_storage.records import NewMessage


class Recorded:
    """A history in memory that answers as the store does."""

    def __init__(self, messages: Sequence[NewMessage], replay: int | None = None) -> None:
        self.messages = list(messages)
        self.marks = [fingerprint(message.body) for message in messages]
        self.replay = replay

    @property
    def length(self) -> int:
        return len(self.marks)

    def fingerprints(self, first: int, count: int) -> Sequence[bytes]:
        return self.marks[first : first + count]

    def places(self, fingerprint: bytes) -> Sequence[int]:
        return [place for place in range(self.length - 1, -1, -1) if self.marks[place] == fingerprint]

    def is_unanswered(self, call_id: str, after: int) -> bool:
        blocks = [block for message in self.messages[after + 1 :] for block in message.blocks]
        last = [block.type for block in blocks if block.call_id == call_id][-1:]
        return last == ["tool_call"]

    def sent(self, *batch: NewMessage) -> Alignment:
        return align(self, [fingerprint(message.body) for message in batch], batch)


def test_a_growing_list_sent_whole_adds_only_what_is_new() -> None:
    whole = conversation(3)
    assert Recorded(whole[:4]).sent(*whole) == Alignment(4)


def test_a_list_that_took_another_course_keeps_the_common_part() -> None:
    whole = conversation(3)
    assert Recorded(whole).sent(*whole[:3], says("another way")) == Alignment(3)


def test_a_long_opening_message_is_known_though_all_after_it_differs() -> None:
    opening = says("Fix the parser so that it reads numbers with exponents. " * 3)
    assert Recorded([opening, *conversation(2)]).sent(opening, says("another way")) == Alignment(1)


def test_a_system_prompt_is_known_though_all_after_it_differs() -> None:
    prompt = says("Be brief.", role="system")
    assert Recorded([prompt, *conversation(2)]).sent(prompt, says("another way")) == Alignment(1)


def test_a_short_opening_word_said_again_before_something_new_is_new() -> None:
    assert Recorded([says("go on"), *conversation(2)]).sent(says("go on"), says("and faster")) == Alignment(0)


def test_a_retried_batch_is_known() -> None:
    whole = conversation(4)
    assert Recorded(whole).sent(*whole[5:]) == Alignment(3)


def test_overlapping_windows_add_only_what_is_new() -> None:
    whole = conversation(5)
    assert Recorded(whole[:6]).sent(*whole[3:]) == Alignment(3)


def test_an_older_batch_with_a_random_call_id_is_known() -> None:
    old = [calls(LONG_ID), answers(LONG_ID)]
    assert Recorded([*conversation(2), *old, *conversation(3)]).sent(*old) == Alignment(2)


def test_an_older_batch_whose_call_ids_are_counted_up_is_new() -> None:
    old = [calls("call_1"), answers("call_1")]
    assert Recorded([*conversation(2), *old, *conversation(3)]).sent(*old) == Alignment(0)


def test_a_result_is_new_where_its_call_was_made_again_and_waits() -> None:
    history = [*conversation(1), calls(LONG_ID), answers(LONG_ID), calls(LONG_ID)]
    assert Recorded(history).sent(answers(LONG_ID)) == Alignment(0)
    assert Recorded([*history, answers(LONG_ID), says("thanks")]).sent(answers(LONG_ID)) == Alignment(1)


def test_plain_words_said_again_later_are_new() -> None:
    history = [*conversation(2), says("continue"), says("done", role="assistant")]
    assert Recorded(history).sent(says("continue")) == Alignment(0)


def test_a_replay_from_the_start_goes_on_until_something_differs() -> None:
    whole = conversation(3)
    assert Recorded(whole).sent(whole[0]) == Alignment(1, replay=1)
    assert Recorded(whole, replay=1).sent(*whole[1:3]) == Alignment(2, replay=3)
    assert Recorded(whole, replay=3).sent(whole[3], says("new")) == Alignment(1)
    assert Recorded(whole, replay=3).sent(says("new")) == Alignment(0)
    assert Recorded(whole, replay=3).sent(*whole[3:], says("new")) == Alignment(3)


words = st.sampled_from(["continue", "run the tests", "yes", "no", "done"])
histories = st.lists(words.map(says), max_size=12)


@given(histories, st.integers(0, 12))
def test_whatever_was_recorded_last_is_known_when_it_is_sent_again(history: list[NewMessage], start: int) -> None:
    assert Recorded(history).sent(*history[start:]).duplicates == len(history[start:])


@given(histories, histories)
def test_the_list_grown_by_anything_adds_just_that(history: list[NewMessage], more: list[NewMessage]) -> None:
    unlike = [says(f"new {place}: {message.body['content']}") for place, message in enumerate(more)]
    assert Recorded(history).sent(*history, *unlike).duplicates == len(history)


@given(histories, histories)
def test_the_overlap_is_the_longest_there_is(history: list[NewMessage], batch: list[NewMessage]) -> None:
    head = says("something else entirely")
    recorded = Recorded([head, *history])
    marks = [fingerprint(message.body) for message in batch]
    longest = max(
        (size for size in range(1, min(len(batch), recorded.length) + 1) if recorded.marks[-size:] == marks[:size]),
        default=0,
    )
    assert recorded.sent(*batch).duplicates == longest
