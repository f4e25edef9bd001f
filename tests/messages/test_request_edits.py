"""Edits of a request's text change the bytes of what they edit, and no other."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextstash.messages.request import JsonPositionError, RequestText, SummaryOf, edited, is_models, read_request
from tests.support.effort import examples

TEXT = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    ['"', "\\", '\\"', "]}", '{"a":[', "\ud83d"]
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3))
MARK = {"type": "ephemeral"}


@st.composite
def written(draw: st.DrawFn, value: Any) -> str:
    """A value as JSON in one of many ways: white space, escapes and number forms differ."""
    space = draw(st.sampled_from(["", " ", "\n\t", "  \r\n"]))
    if isinstance(value, dict):
        parts = [f"{space}{json.dumps(k)}{space}:{space}{draw(written(v))}" for k, v in value.items()]
        return "{" + f"{space},".join(parts) + space + "}"
    if isinstance(value, list):
        return "[" + ",".join(space + draw(written(each)) + space for each in value) + "]"
    return json.dumps(value, ensure_ascii=draw(st.booleans()))


@st.composite
def blocks(draw: st.DrawFn, number: int) -> list[dict[str, Any]]:
    """The blocks of one message: results in both shapes, thinking, text, breakpoints, unknown fields."""
    found: list[dict[str, Any]] = []
    for place in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["text", "tool_result", "tool_result", "thinking"]))
        block: dict[str, Any] = {"type": kind}
        if kind == "tool_result":
            inner: dict[str, Any] = {"type": "text", "text": draw(TEXT)}
            if draw(st.booleans()):
                inner["cache_control"] = MARK
            block |= {"tool_use_id": f"t{number}_{place}", "content": draw(st.sampled_from([draw(TEXT), [inner]]))}
        else:
            block[kind] = draw(TEXT)
        if draw(st.booleans()):
            block["extra"] = draw(VALUES)
        if kind != "thinking" and draw(st.booleans()):
            block["cache_control"] = MARK
        found.append(block)
    return found


@st.composite
def requests(draw: st.DrawFn) -> tuple[bytes, dict[str, Any]]:
    count = draw(st.integers(1, 5))
    messages = [{"role": "user", "content": draw(blocks(n))} for n in range(count)]
    body = {"model": "m", "messages": messages, "system": draw(VALUES), "x": draw(VALUES)}
    if draw(st.booleans()):
        body = dict(reversed(body.items()))
    text = draw(st.sampled_from(["", " ", "\n"])) + draw(written(body))
    return text.encode("utf-8", "surrogatepass"), body


@settings(max_examples=examples(400))
@given(requests(), st.data())
def test_outside_the_edited_values_the_bytes_are_equal_and_the_result_means_the_edit(
    made: tuple[bytes, dict[str, Any]], data: st.DataObject
) -> None:
    body, meant = made
    try:
        request = read_request("anthropic", body)
    except UnicodeDecodeError:
        return  # a lone surrogate that was not escaped: no JSON
    expected = json.loads(json.dumps(meant))
    edits: dict[int, dict[Any, str]] = {}
    for place, message in enumerate(request.messages):
        edits[place] = {}
        for result in message.results:
            if data.draw(st.booleans()):
                edits[place][result.path] = data.draw(TEXT)
                _expect(expected["messages"][place]["content"][result.path[1]], edits[place][result.path])
    after = edited(request, edits)
    assert json.loads(after) == expected
    first = request.spans[next((place for place, texts in edits.items() if texts), -1)].start
    assert after[:first] == body[:first]
    assert after is body or any(edits.values())
    for span, texts in zip(request.spans, edits.values(), strict=True):
        if not texts:
            assert body[span.start : span.end] in after


def _expect(block: dict[str, Any], text: str) -> None:
    """The block with its content replaced."""
    block["content"] = [{"type": "text", "text": text}] if isinstance(block["content"], list) else text


def as_read(body: bytes, before: RequestText | None) -> object:
    """All that is read of a body; "refused" if it cannot be read: of two mistakes either may be found first."""
    try:
        request = read_request("anthropic", body, before)
        system = request.value("system")
    except ValueError:
        return "refused"
    messages = [(message.raw, message.native) for message in request.messages]
    return messages, request.spans, request.fields, system


@settings(max_examples=examples(400))
@given(requests(), st.data())
def test_a_byte_that_changes_anywhere_is_seen_behind_all_that_is_known(
    made: tuple[bytes, dict[str, Any]], data: st.DataObject
) -> None:
    body, _ = made
    try:
        before = read_request("anthropic", body)
    except UnicodeDecodeError:
        return
    before.value("system")
    at = data.draw(st.integers(0, len(body) - 1))
    removed = data.draw(st.integers(0, 3))
    put = data.draw(st.sampled_from([b"", b" ", b"x", b'"', b"}", b"]", b",", b"{}", b'{"role":"user"},', b"\\"]))
    changed = body[:at] + put + body[at + removed :]
    assert as_read(changed, before) == as_read(changed, None)


@pytest.mark.parametrize("content", ["2", [], [{"type": "text", "text": "2"}]])
def test_a_summary_goes_in_front_of_the_users_message_that_follows(content: Any) -> None:
    messages = [{"role": "user", "content": str(number)} for number in range(2)]
    messages += [{"role": "user", "content": content}, {"role": "assistant", "content": "3"}]
    body = json.dumps({"messages": messages, "n": 1.0}).encode()
    after = edited(read_request("anthropic", body), {}, [SummaryOf(0, 1, "a summary")])
    kept = [{"type": "text", "text": content}] if isinstance(content, str) else content
    first = {"role": "user", "content": [{"type": "text", "text": "a summary"}, *kept]}
    assert json.loads(after)["messages"] == [first, messages[3]]
    assert after.endswith(b', {"role": "assistant", "content": "3"}], "n": 1.0}')
    after = edited(read_request("anthropic", body), {}, [SummaryOf(0, 2, "a summary")])
    assert json.loads(after)["messages"] == [{"role": "user", "content": "a summary"}, messages[3]]


def test_a_member_that_is_there_twice_is_not_edited() -> None:
    block = b'{"type":"tool_result","tool_use_id":"t","content":"one","content":"two"}'
    request = read_request("anthropic", b'{"messages":[{"role":"user","content":[' + block + b"]}]}")
    with pytest.raises(JsonPositionError):
        edited(request, {0: {("content", 0, "content"): "x"}})


@pytest.mark.parametrize(
    "body",
    [b'{"messages":[{}],"messages":[{}]}', b'{"messages":[]}', b'{"messages":[{}]} x', b'{"messages":[{}', b"[]", b""],
)
def test_a_body_that_parsers_may_read_differently_is_not_read(body: bytes) -> None:
    with pytest.raises(JsonPositionError):
        read_request("anthropic", body)


def test_results_of_the_other_formats_are_replaced_in_place() -> None:
    chat = b'{"messages":[{"role":"tool","tool_call_id":"c","content":"long"}],"z":1}'
    after = edited(read_request("openai-chat", chat), {0: {("content",): "short"}})
    assert after == chat.replace(b'"long"', b'"short"')
    items = b'{"input":[{"type":"function_call_output","call_id":"c","output":[{"type":"input_text","text":"long"}]}]}'
    after = edited(read_request("openai-responses", items), {0: {("output",): "short"}})
    assert after == items.replace(b'[{"type":"input_text","text":"long"}]', b'[{"type":"input_text","text":"short"}]')
    kinds = {
        "function_call": True,
        "function_call_output": False,
        "program_output": True,
        "mcp_approval_response": False,
    }
    assert {kind: is_models({"type": kind}) for kind in kinds} == kinds


def test_a_text_alone_is_a_message_of_the_user_and_goes_on_as_one() -> None:
    alone = read_request("openai-responses", b'{"model":"m", "input": "Fix \\u00e9.", "tools": []}')
    later = read_request("openai-responses", b'{"input":[{"role":"user","content":"Fix \\u00e9."}]}', alone)
    assert [each.plain for each in alone.messages] == [each.plain for each in later.messages]
    assert [alone.body[slice(*span)] for span in alone.spans] == [b'"Fix \\u00e9."']
    with pytest.raises(JsonPositionError):
        read_request("openai-chat", b'{"messages":"Fix it."}')


def test_bytes_that_are_not_text_are_refused_behind_messages_that_are_known_too() -> None:
    body = b'{"model":"m","messages":[{"role":"user","content":"go"}],"x":"\xc2\x80"}'
    broken = body.replace(b"\xc2", b" ")
    assert as_read(broken, None) == as_read(broken, read_request("anthropic", body)) == "refused"
