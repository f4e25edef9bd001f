"""Requests are read one after another, each with the help of the one before, as a JSON parser reads each by itself."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextstash.messages.json_positions import JsonPositionError
from contextstash.messages.request import RequestText, read_request
from tests.support.effort import examples

CHARACTERS = [*"a é…日😀", *"\x00\x1f\x7f\x85\xa0\u2028", '"', "\\", "\ud83d", "]}"]
TEXTS = st.lists(st.sampled_from(CHARACTERS), max_size=8).map("".join)
MESSAGES = st.fixed_dictionaries({"role": st.just("user"), "content": TEXTS}, optional={"é": TEXTS})
ENCODINGS = st.sampled_from([True, False])


def sent(messages: list[dict[str, Any]], *, escaped: bool = False, **others: Any) -> bytes:
    return json.dumps({**others, "messages": messages}, ensure_ascii=escaped).encode("utf-8", "surrogatepass")


def check(request: RequestText) -> None:
    """What was read is what a JSON parser reads, and stands where its span says."""
    body = request.body
    expected = json.loads(body.decode("utf-8", "surrogatepass"))["messages"]
    assert [message.native for message in request.messages] == expected
    for message, span in zip(request.messages, request.spans, strict=True):
        assert message.raw == body[span.start : span.end]
        assert json.loads(message.raw.decode("utf-8", "surrogatepass")) == message.native


def said(*texts: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text} for text in texts]


def test_a_new_message_is_read_behind_a_known_one_that_is_not_ascii() -> None:
    before = read_request("anthropic", sent(said("go", "one …", "two")))
    after = read_request("anthropic", sent(said("changed", "one …", "another …", "three")), before)
    check(after)
    assert after.messages[1] is before.messages[1]


@settings(max_examples=examples(400))
@given(st.lists(MESSAGES, min_size=1, max_size=6), st.data())
def test_a_conversation_whose_messages_change_anywhere_is_read_as_json(
    messages: list[dict[str, Any]], data: st.DataObject
) -> None:
    before: RequestText | None = None
    for _ in range(data.draw(st.integers(1, 4))):
        body = sent(messages, escaped=data.draw(ENCODINGS), system=data.draw(TEXTS))
        before = read_request("anthropic", body, before)
        check(before)
        changed = data.draw(st.lists(st.integers(0, len(messages) - 1), max_size=2))
        messages = [data.draw(MESSAGES) if place in changed else each for place, each in enumerate(messages)]
        messages = messages[data.draw(st.integers(0, 1)) :] + data.draw(st.lists(MESSAGES, min_size=1, max_size=2))


def test_bytes_that_are_not_utf_8_are_refused_wherever_they_are_new() -> None:
    body = sent(said("go", "on"), system="é", tools=["…"])
    known = read_request("anthropic", body)
    for at in range(len(body)):
        if body[at] >= 0x80:
            with pytest.raises(UnicodeDecodeError):
                read_request("anthropic", body[:at] + b"\xff" + body[at + 1 :], known)


def test_a_request_that_cannot_be_read_does_not_touch_the_next_one() -> None:
    known = read_request("anthropic", sent(said("go", "one …")))
    with pytest.raises(JsonPositionError):
        read_request("anthropic", sent(said("go", "one …", "two"))[:-3] + b"\xff]}", known)
    check(read_request("anthropic", sent(said("go", "one …", "two")), known))
